-- stale_rows
SET NOCOUNT ON;
DECLARE @approved TABLE (
    id bigint NOT NULL PRIMARY KEY, revision bigint NOT NULL, qty bigint NOT NULL, slice bigint NOT NULL
);
INSERT INTO @approved (id, revision, qty, slice)
SELECT r.id, r.revision, r.qty, (ROW_NUMBER() OVER (ORDER BY r.id) - 1) / 2000
FROM OPENJSON(%s) WITH (id bigint '$[0]', revision bigint '$[1]', qty bigint '$[2]') AS r;
DECLARE @slice bigint = 0, @last bigint = (SELECT MAX(slice) FROM @approved);

DECLARE @stale TABLE (
    id bigint NOT NULL PRIMARY KEY, there bit NOT NULL, revision bigint NULL, qty bigint NULL, state nvarchar(max) NULL
);
WHILE @slice <= @last
BEGIN
    INSERT INTO @stale (id, there, revision, qty, state)
    SELECT a.id, CASE WHEN held.[id] IS NULL THEN 0 ELSE 1 END, held.[revision], held.[qty],
        held.[state]
    FROM @approved AS a
    LEFT OUTER LOOP JOIN [portal_orderline] AS held WITH (UPDLOCK, ROWLOCK, READCOMMITTEDLOCK)
        ON held.[id] = a.id AND held.[tenant] = %s
    WHERE a.slice = @slice AND (
        held.[id] IS NULL OR held.[revision] IS NULL OR held.[revision] <> a.revision
        OR held.[qty] IS NULL OR held.[qty] <> a.qty
        OR held.[state] IS NULL OR held.[state] <> %s
    )
    ORDER BY a.id
    OPTION (MAXDOP 1);
    SET @slice = @slice + 1;
END;
SELECT id, there, revision, qty, state FROM @stale ORDER BY id;

-- standing_rows
SET NOCOUNT ON;
DECLARE @asked TABLE (id bigint NOT NULL PRIMARY KEY);
INSERT INTO @asked (id) SELECT r.id FROM OPENJSON(%s) WITH (id bigint '$[0]') AS r;
SELECT held.[id], held.[revision], held.[qty], held.[state]
FROM @asked AS a INNER JOIN [portal_orderline] AS held ON held.[id] = a.id
WHERE held.[tenant] = %s
ORDER BY held.[id];

-- change_rows
SET NOCOUNT ON;
DECLARE @approved TABLE (
    id bigint NOT NULL PRIMARY KEY, revision bigint NOT NULL, qty bigint NOT NULL, slice bigint NOT NULL
);
INSERT INTO @approved (id, revision, qty, slice)
SELECT r.id, r.revision, r.qty, (ROW_NUMBER() OVER (ORDER BY r.id) - 1) / 2000
FROM OPENJSON(%s) WITH (id bigint '$[0]', revision bigint '$[1]', qty bigint '$[2]') AS r;
DECLARE @slice bigint = 0, @last bigint = (SELECT MAX(slice) FROM @approved);

DECLARE @before TABLE (
    id bigint NOT NULL PRIMARY KEY, revision_before bigint NOT NULL, state_before nvarchar(max) NOT NULL
);
DECLARE @audited bigint = 0;
WHILE @slice <= @last
BEGIN
    UPDATE [portal_orderline] SET [state] = %s, [revision] = [portal_orderline].[revision] + 1
    OUTPUT deleted.[id], deleted.[revision], deleted.[state]
    INTO @before (id, revision_before, state_before)
    FROM @approved AS a INNER LOOP JOIN [portal_orderline] ON [portal_orderline].[id] = a.id
    WHERE a.slice = @slice AND [portal_orderline].[tenant] = %s
        AND [portal_orderline].[revision] = a.revision AND [portal_orderline].[qty] = a.qty
        AND [portal_orderline].[state] = %s;
    INSERT INTO receipts_audit
        (change_id, target_id, revision_before, revision_after, qty, state_before, state_after)
    SELECT %s, b.id, b.revision_before, held.[revision], held.[qty], b.state_before, held.[state]
    FROM @approved AS a INNER LOOP JOIN @before AS b ON b.id = a.id
    INNER LOOP JOIN [portal_orderline] AS held ON held.[id] = b.id
    WHERE a.slice = @slice AND held.[revision] > b.revision_before
    ORDER BY b.id;
    SET @audited = @audited + @@ROWCOUNT;
    SET @slice = @slice + 1;
END;
SELECT @audited;

-- change_row
SET NOCOUNT ON;
DECLARE @changed TABLE (id bigint NOT NULL);
UPDATE [portal_orderline] SET [state] = %s, [revision] = [revision] + 1
OUTPUT inserted.[id] INTO @changed (id)
WHERE [id] = %s AND [tenant] = %s AND [revision] = %s AND [qty] = %s AND [state] = %s;
SELECT held.[id], held.[revision], held.[qty], held.[state]
FROM @changed AS c INNER JOIN [portal_orderline] AS held ON held.[id] = c.id
WHERE held.[revision] > %s;

-- read_fields, locked
SET NOCOUNT ON;
DECLARE @asked TABLE (id bigint NOT NULL PRIMARY KEY);
INSERT INTO @asked (id) SELECT r.id FROM OPENJSON(%s) WITH (id bigint '$') AS r;
SELECT held.[id], held.[price], held.[currency]
FROM @asked AS a INNER LOOP JOIN [portal_price] AS held WITH (UPDLOCK, ROWLOCK, READCOMMITTEDLOCK) ON held.[id] = a.id AND held.[tenant] = %s
ORDER BY a.id
OPTION (MAXDOP 1);

-- read_fields, not locked
SET NOCOUNT ON;
DECLARE @asked TABLE (id bigint NOT NULL PRIMARY KEY);
INSERT INTO @asked (id) SELECT r.id FROM OPENJSON(%s) WITH (id bigint '$') AS r;
SELECT held.[id], held.[price], held.[currency]
FROM @asked AS a INNER LOOP JOIN [portal_price] AS held ON held.[id] = a.id AND held.[tenant] = %s
ORDER BY a.id
OPTION (MAXDOP 1);

-- change_fields
SET NOCOUNT ON;
DECLARE @approved TABLE (id bigint NOT NULL PRIMARY KEY, c0 numeric(12, 2) NULL, c1 nvarchar(3) NULL, c2 int NULL, s0 numeric(12, 2) NULL);
INSERT INTO @approved (id, c0, c1, c2, s0)
SELECT r.id, c0, c1, c2, s0 FROM OPENJSON(%s) WITH (id bigint '$.id', c0 numeric(12, 2) '$.c0', c1 nvarchar(3) '$.c1', c2 int '$.c2', s0 numeric(12, 2) '$.s0') AS r;
DECLARE @changed bigint;
UPDATE [portal_price] SET [changed_by] = %s, [price] = a.s0, [revision] = [portal_price].[revision] + 1
FROM @approved AS a INNER LOOP JOIN [portal_price] ON [portal_price].[id] = a.id
WHERE [portal_price].[id] = a.id AND [portal_price].[tenant] = %s AND EXISTS (SELECT [portal_price].[price] INTERSECT SELECT a.c0) AND EXISTS (SELECT [portal_price].[currency] COLLATE Latin1_General_100_BIN2, DATALENGTH([portal_price].[currency]) INTERSECT SELECT a.c1 COLLATE Latin1_General_100_BIN2, DATALENGTH(a.c1)) AND EXISTS (SELECT [portal_price].[revision] INTERSECT SELECT a.c2) AND [portal_price].[state] = %s;
SET @changed = @@ROWCOUNT;
SELECT @changed;

-- audit_fields
SET NOCOUNT ON;
INSERT INTO receipts_audit (change_id, target_id, revision_before, revision_after, qty, state_before, state_after, fields)
SELECT %s, r.target_id, r.revision_before, r.revision_after, r.qty, r.state_before, r.state_after, r.fields FROM OPENJSON(%s) WITH (target_id bigint '$[0]', revision_before bigint '$[1]', revision_after bigint '$[2]', qty bigint '$[3]', state_before nvarchar(40) '$[4]', state_after nvarchar(40) '$[5]', fields nvarchar(max) '$[6]') AS r;
SELECT 0;

-- try_seal_lock
SET NOCOUNT ON;
DECLARE @code int;
EXEC @code = sp_getapplock @Resource = %s, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 0;
SELECT @code;

-- guard
CREATE TRIGGER receipts_changes_append_only ON receipts_changes INSTEAD OF UPDATE, DELETE AS THROW 51547, N'receipts_changes is append-only: a receipt is neither changed nor deleted', 1;
-- and then
CREATE TRIGGER receipts_audit_append_only ON receipts_audit INSTEAD OF UPDATE, DELETE AS THROW 51547, N'receipts_audit is append-only: a receipt is neither changed nor deleted', 1;
-- and then
CREATE TRIGGER receipts_leaf_append_only ON receipts_leaf INSTEAD OF UPDATE, DELETE AS THROW 51547, N'receipts_leaf is append-only: a receipt is neither changed nor deleted', 1;
-- and then
CREATE TRIGGER receipts_checkpoint_append_only ON receipts_checkpoint INSTEAD OF UPDATE, DELETE AS THROW 51547, N'receipts_checkpoint is append-only: a receipt is neither changed nor deleted', 1;
-- and then
CREATE TABLE receipts_audit_pin (audit_id bigint NOT NULL CONSTRAINT pk_receipts_audit_pin PRIMARY KEY CONSTRAINT fk_receipts_audit_pin REFERENCES receipts_audit (id))

-- unguard
DROP TRIGGER IF EXISTS receipts_changes_append_only
-- and then
DROP TRIGGER IF EXISTS receipts_audit_append_only
-- and then
DROP TRIGGER IF EXISTS receipts_leaf_append_only
-- and then
DROP TRIGGER IF EXISTS receipts_checkpoint_append_only
-- and then
DROP TABLE IF EXISTS receipts_audit_pin

-- guard_flaws
SELECT t.name, OBJECT_NAME(t.parent_id), t.is_disabled, m.definition
FROM sys.triggers AS t LEFT OUTER JOIN sys.sql_modules AS m ON m.object_id = t.object_id
-- and then
SELECT k.is_disabled FROM sys.foreign_keys AS k
WHERE k.name = N'fk_receipts_audit_pin' AND OBJECT_NAME(k.referenced_object_id) = N'receipts_audit'

-- weaknesses
SELECT d.delayed_durability_desc, d.page_verify_option_desc, d.compatibility_level, @@LANGUAGE
FROM sys.databases AS d WHERE d.database_id = DB_ID()

