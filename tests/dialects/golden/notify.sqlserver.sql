-- now
SELECT CAST(SYSUTCDATETIME() AS datetime2(6))

-- weaknesses
SELECT d.compatibility_level, d.is_read_committed_snapshot_on, @@LANGUAGE
FROM sys.databases AS d WHERE d.database_id = DB_ID()

-- filtered_tables
SELECT OBJECT_NAME(f.target_object_id), (
    SELECT SUM(p.rows) FROM sys.partitions AS p WHERE p.object_id = f.target_object_id AND p.index_id IN (0, 1)
)
FROM sys.security_predicates AS f JOIN sys.security_policies AS s ON s.object_id = f.object_id
WHERE s.is_enabled = 1 AND f.predicate_type_desc = N'FILTER'
ORDER BY 1
-- and then
SELECT TOP (1) 1 AS one FROM [portal_comment]

-- try_lock
DECLARE @code int;
IF APPLOCK_MODE(N'public', N'kwit.notify.pass', N'Session') = N'NoLock'
    EXEC @code = sp_getapplock
        @Resource = N'kwit.notify.pass', @LockMode = N'Exclusive', @LockOwner = N'Session', @LockTimeout = 0;
SELECT @code, @@SPID;

-- holder
SELECT s.session_id, s.program_name, s.host_name, s.host_process_id, s.login_time
FROM sys.dm_tran_locks AS l JOIN sys.dm_exec_sessions AS s ON s.session_id = l.request_session_id
WHERE l.resource_type = N'APPLICATION' AND l.request_status = N'GRANT' AND l.resource_database_id = DB_ID()
  AND l.resource_description LIKE N'%[[]kwit.notify.pass]%'

-- is_locked
SELECT APPLOCK_MODE(N'public', N'kwit.notify.pass', N'Session'), @@SPID

-- is_lock_free
SELECT CASE WHEN APPLOCK_MODE(N'public', N'kwit.notify.pass', N'Session') <> N'NoLock' THEN 0
            ELSE APPLOCK_TEST(N'public', N'kwit.notify.pass', N'Exclusive', N'Session') END

-- unlock
IF APPLOCK_MODE(N'public', N'kwit.notify.pass', N'Session') <> N'NoLock'
    EXEC sp_releaseapplock @Resource = N'kwit.notify.pass', @LockOwner = N'Session';

-- enter_pass
SELECT CASE WHEN @@OPTIONS & 16384 = 0 THEN N'OFF' ELSE N'ON' END, @@LOCK_TIMEOUT, s.deadlock_priority
FROM sys.dm_exec_sessions AS s WHERE s.session_id = @@SPID

-- leave_pass
SET XACT_ABORT OFF; SET LOCK_TIMEOUT -1; SET DEADLOCK_PRIORITY 0;

-- yield_to_others
SET XACT_ABORT ON; SET LOCK_TIMEOUT 500; SET DEADLOCK_PRIORITY LOW;

-- stream, its table
SELECT @@LOCK_TIMEOUT;
CREATE TABLE #kwit_candidates_1 (place bigint IDENTITY (1, 1) PRIMARY KEY, c0 bigint NULL, c1 nvarchar(10) NULL);

-- stream, its pages
SET LOCK_TIMEOUT -1;
SELECT TOP (2000) * FROM #kwit_candidates_1 WHERE place > 0 ORDER BY place;

-- insert_controls
SET NOCOUNT ON;
BEGIN TRY
DECLARE @kind nvarchar(4000) = %s, @rows nvarchar(max) = %s;
DECLARE @new TABLE ([key] bigint NOT NULL, key2 bigint NOT NULL, id bigint NOT NULL);
INSERT INTO notify_control (kind, [key], key2, language, recipients, tenant, original_key)
OUTPUT inserted.[key], inserted.key2, inserted.id INTO @new ([key], key2, id)
SELECT @kind, r.[key], r.key2, r.language, r.recipients, r.tenant, r.original_key
FROM OPENJSON(@rows) WITH (
    [key] bigint '$[0]', key2 bigint '$[1]', language nvarchar(max) '$[2]', recipients nvarchar(max) '$[3]',
    tenant nvarchar(max) '$[4]', original_key nvarchar(max) '$[5]'
) AS r
WHERE NOT EXISTS (
    SELECT 1 FROM notify_control AS c WITH (UPDLOCK, HOLDLOCK)
    WHERE c.kind = @kind AND c.[key] = r.[key] AND c.key2 = r.key2
)
ORDER BY r.[key], r.key2
OPTION (LOOP JOIN);
SELECT [key], key2, id FROM @new;
END TRY
BEGIN CATCH
    DECLARE @number int = ERROR_NUMBER(), @told nvarchar(2048);
    SET @told = CASE
        WHEN @number IN (1205, 1222, 3960, 3961) THEN N'kwit: to be repeated'
        WHEN @number >= 50000 OR @number IN (2628, 3609, 8152) THEN N'kwit: refused'
    END;
    IF @told IS NULL
    BEGIN;
        THROW;
    END;
    SET @told = CONCAT(@told, N': error ', @number, N': ', ERROR_MESSAGE());
    THROW 51205, @told, 1;
END CATCH;

-- insert_mails
SET NOCOUNT ON;
BEGIN TRY
INSERT INTO notify_mail_queue
       (pass_id, control_id, template, subject, recipients, language, payload, state, problem, tenant, notes)
SELECT %s, r.control_id, r.template, r.subject, r.recipients, r.language, r.payload, r.state, r.problem, r.tenant,
       r.notes
FROM OPENJSON(%s) WITH (
    control_id bigint '$[0]', template nvarchar(max) '$[1]', subject nvarchar(max) '$[2]',
    recipients nvarchar(max) '$[3]' AS JSON, language nvarchar(max) '$[4]', payload nvarchar(max) '$[5]' AS JSON,
    state nvarchar(max) '$[6]', problem nvarchar(max) '$[7]', tenant nvarchar(max) '$[8]',
    notes nvarchar(max) '$[9]'
) AS r;
END TRY
BEGIN CATCH
    DECLARE @number int = ERROR_NUMBER(), @told nvarchar(2048);
    SET @told = CASE
        WHEN @number IN (1205, 1222, 3960, 3961) THEN N'kwit: to be repeated'
        WHEN @number >= 50000 OR @number IN (2628, 3609, 8152) THEN N'kwit: refused'
    END;
    IF @told IS NULL
    BEGIN;
        THROW;
    END;
    SET @told = CONCAT(@told, N': error ', @number, N': ', ERROR_MESSAGE());
    THROW 51205, @told, 1;
END CATCH;

-- insert_tasks
SET NOCOUNT ON;
BEGIN TRY
INSERT INTO notify_task_queue (pass_id, control_id, title, assignee, language, payload, tenant)
SELECT %s, r.control_id, r.title, r.assignee, r.language, r.payload, r.tenant
FROM OPENJSON(%s) WITH (
    control_id bigint '$[0]', title nvarchar(max) '$[1]', assignee nvarchar(max) '$[2]',
    language nvarchar(max) '$[3]', payload nvarchar(max) '$[4]' AS JSON, tenant nvarchar(max) '$[5]'
) AS r;
END TRY
BEGIN CATCH
    DECLARE @number int = ERROR_NUMBER(), @told nvarchar(2048);
    SET @told = CASE
        WHEN @number IN (1205, 1222, 3960, 3961) THEN N'kwit: to be repeated'
        WHEN @number >= 50000 OR @number IN (2628, 3609, 8152) THEN N'kwit: refused'
    END;
    IF @told IS NULL
    BEGIN;
        THROW;
    END;
    SET @told = CONCAT(@told, N': error ', @number, N': ', ERROR_MESSAGE());
    THROW 51205, @told, 1;
END CATCH;

-- claim_mails
SET NOCOUNT ON;
BEGIN TRY
DECLARE @now datetime2(6) = %s;
DECLARE @claimed TABLE (id bigint NOT NULL PRIMARY KEY, due_at datetime2(6) NOT NULL);
UPDATE m SET worker = %s, lease_until = %s
OUTPUT inserted.id, inserted.due_at INTO @claimed (id, due_at)
FROM (
    SELECT TOP (%s) q.id FROM notify_mail_queue AS q WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE q.state = N'queued' AND q.due_at <= @now AND q.digest_of_id IS NULL
      AND (q.lease_until IS NULL OR q.lease_until < @now)
    ORDER BY q.due_at, q.id
) AS due
INNER LOOP JOIN notify_mail_queue AS m ON m.id = due.id
WHERE m.state = N'queued' AND m.digest_of_id IS NULL AND (m.lease_until IS NULL OR m.lease_until < @now);
SELECT id FROM @claimed ORDER BY due_at, id;
END TRY
BEGIN CATCH
    DECLARE @number int = ERROR_NUMBER(), @told nvarchar(2048);
    SET @told = CASE
        WHEN @number IN (1205, 1222, 3960, 3961) THEN N'kwit: to be repeated'
        WHEN @number >= 50000 OR @number IN (2628, 3609, 8152) THEN N'kwit: refused'
    END;
    IF @told IS NULL
    BEGIN;
        THROW;
    END;
    SET @told = CONCAT(@told, N': error ', @number, N': ', ERROR_MESSAGE());
    THROW 51205, @told, 1;
END CATCH;

-- insert_attempts
SET NOCOUNT ON;
BEGIN TRY
INSERT INTO notify_attempt (mail_id, number, part, recipient, outcome, code, enhanced, text, at, worker, channel, notes) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, NULL);
SELECT @@ROWCOUNT;
END TRY
BEGIN CATCH
    DECLARE @number int = ERROR_NUMBER(), @told nvarchar(2048);
    SET @told = CASE
        WHEN @number IN (1205, 1222, 3960, 3961) THEN N'kwit: to be repeated'
        WHEN @number >= 50000 OR @number IN (2628, 3609, 8152) THEN N'kwit: refused'
    END;
    IF @told IS NULL
    BEGIN;
        THROW;
    END;
    SET @told = CONCAT(@told, N': error ', @number, N': ', ERROR_MESSAGE());
    THROW 51205, @told, 1;
END CATCH;

-- try_begin_mail
SET NOCOUNT ON;
BEGIN TRY
UPDATE notify_mail_queue SET state = %s, flight = %s WHERE id = %s AND worker = %s AND lease_until > %s AND state IN ('queued', 'sending') AND digest_of_id IS NULL;
SELECT @@ROWCOUNT;
END TRY
BEGIN CATCH
    DECLARE @number int = ERROR_NUMBER(), @told nvarchar(2048);
    SET @told = CASE
        WHEN @number IN (1205, 1222, 3960, 3961) THEN N'kwit: to be repeated'
        WHEN @number >= 50000 OR @number IN (2628, 3609, 8152) THEN N'kwit: refused'
    END;
    IF @told IS NULL
    BEGIN;
        THROW;
    END;
    SET @told = CONCAT(@told, N': error ', @number, N': ', ERROR_MESSAGE());
    THROW 51205, @told, 1;
END CATCH;

-- try_settle_mail
SET NOCOUNT ON;
BEGIN TRY
UPDATE notify_mail_queue SET worker = %s, lease_until = NULL, flight = NULL, state = %s WHERE id = %s AND worker = %s AND state IN ('queued', 'sending', 'uncertain');
SELECT @@ROWCOUNT;
END TRY
BEGIN CATCH
    DECLARE @number int = ERROR_NUMBER(), @told nvarchar(2048);
    SET @told = CASE
        WHEN @number IN (1205, 1222, 3960, 3961) THEN N'kwit: to be repeated'
        WHEN @number >= 50000 OR @number IN (2628, 3609, 8152) THEN N'kwit: refused'
    END;
    IF @told IS NULL
    BEGIN;
        THROW;
    END;
    SET @told = CONCAT(@told, N': error ', @number, N': ', ERROR_MESSAGE());
    THROW 51205, @told, 1;
END CATCH;

