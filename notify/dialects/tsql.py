"""What the room for SQL Server says to it."""

#: The application lock's name; compared case-sensitively, in the scope of one database and one database principal.
LOCK = "kwit.notify.pass"

# Neither has SET NOCOUNT ON: without parameters it would stay for the session, and take every row count away.
TRY_LOCK = f"""
DECLARE @code int;
IF APPLOCK_MODE(N'public', N'{LOCK}', N'Session') = N'NoLock'
    EXEC @code = sp_getapplock
        @Resource = N'{LOCK}', @LockMode = N'Exclusive', @LockOwner = N'Session', @LockTimeout = 0;
SELECT @code, @@SPID;
"""
IS_LOCKED = f"SELECT APPLOCK_MODE(N'public', N'{LOCK}', N'Session'), @@SPID"
UNLOCK = f"""
IF APPLOCK_MODE(N'public', N'{LOCK}', N'Session') <> N'NoLock'
    EXEC sp_releaseapplock @Resource = N'{LOCK}', @LockOwner = N'Session';
"""
STANDING = """
SELECT d.compatibility_level, d.is_read_committed_snapshot_on, @@LANGUAGE
FROM sys.databases AS d WHERE d.database_id = DB_ID()
"""
# Only the first 32 characters of an application lock's name can be read in sys.dm_tran_locks.
HOLDER = f"""
SELECT s.session_id, s.program_name, s.host_name, s.host_process_id, s.login_time
FROM sys.dm_tran_locks AS l JOIN sys.dm_exec_sessions AS s ON s.session_id = l.request_session_id
WHERE l.resource_type = N'APPLICATION' AND l.request_status = N'GRANT' AND l.resource_database_id = DB_ID()
  AND l.resource_description LIKE N'%[[]{LOCK}]%'
"""  # noqa: S608 - a constant
SESSION_BEFORE = """
SELECT CASE WHEN @@OPTIONS & 16384 = 0 THEN N'OFF' ELSE N'ON' END, @@LOCK_TIMEOUT, s.deadlock_priority
FROM sys.dm_exec_sessions AS s WHERE s.session_id = @@SPID
"""
# Without parameters, and so it must stay: what sp_executesql sets ends with it.
SESSION = "SET XACT_ABORT {}; SET LOCK_TIMEOUT {:d}; SET DEADLOCK_PRIORITY {};"

# LOOP JOIN: a scan under HOLDLOCK would lock the whole kind, and all of it at once.
INSERT_CONTROLS = """
DECLARE @kind nvarchar(4000) = %s, @rows nvarchar(max) = %s;
DECLARE @new TABLE ([key] bigint NOT NULL, key2 bigint NOT NULL, id bigint NOT NULL);
INSERT INTO notify_control (kind, [key], key2, language, recipients, tenant)
OUTPUT inserted.[key], inserted.key2, inserted.id INTO @new ([key], key2, id)
SELECT @kind, r.[key], r.key2, r.language, r.recipients, r.tenant
FROM OPENJSON(@rows) WITH (
    [key] bigint '$[0]', key2 bigint '$[1]', language nvarchar(max) '$[2]', recipients nvarchar(max) '$[3]',
    tenant nvarchar(max) '$[4]'
) AS r
WHERE NOT EXISTS (
    SELECT 1 FROM notify_control AS c WITH (UPDLOCK, HOLDLOCK)
    WHERE c.kind = @kind AND c.[key] = r.[key] AND c.key2 = r.key2
)
ORDER BY r.[key], r.key2
OPTION (LOOP JOIN);
SELECT [key], key2, id FROM @new;
"""
INSERT_MAILS = """
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
"""
INSERT_TASKS = """
INSERT INTO notify_task_queue (pass_id, control_id, title, assignee, language, payload, tenant)
SELECT %s, r.control_id, r.title, r.assignee, r.language, r.payload, r.tenant
FROM OPENJSON(%s) WITH (
    control_id bigint '$[0]', title nvarchar(max) '$[1]', assignee nvarchar(max) '$[2]',
    language nvarchar(max) '$[3]', payload nvarchar(max) '$[4]' AS JSON, tenant nvarchar(max) '$[5]'
) AS r;
"""
# READCOMMITTEDLOCK: Microsoft asks for it beside READPAST where READ_COMMITTED_SNAPSHOT is on (error 650). LOOP JOIN:
# the rows that were locked are looked up by their ids, in whatever plan; a scan would wait for the rows of the other
# workers. The hints only save waiting; what decides between two workers is the condition that the UPDATE repeats.
CLAIM_MAILS = """
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
"""
