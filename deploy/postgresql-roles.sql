-- Two roles for Kwit on PostgreSQL: kwit_owner owns the tables and migrates, kwit_app does all the rest. Who is
-- kwit_app can neither drop nor disable the triggers that keep receipts append-only, nor replace their function.
--
-- Run it in Kwit's database as a superuser (or as a role that may create roles and owns the tables), before the first
-- migrate or any time after one; running it again changes nothing. Give both roles their passwords yourself:
--     ALTER ROLE kwit_owner PASSWORD '…';
-- It is one transaction: everything or nothing.

BEGIN;

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'kwit_owner') THEN
        CREATE ROLE kwit_owner LOGIN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'kwit_app') THEN
        CREATE ROLE kwit_app LOGIN;
    END IF;
END $$;

REVOKE CREATE ON SCHEMA public FROM PUBLIC;
REVOKE CREATE ON SCHEMA public FROM kwit_app;
GRANT USAGE, CREATE ON SCHEMA public TO kwit_owner;
GRANT USAGE ON SCHEMA public TO kwit_app;

-- What is there already.
DO $$
DECLARE
    one record;
BEGIN
    -- A sequence that belongs to a column follows its table.
    FOR one IN
        SELECT format('ALTER TABLE %s OWNER TO kwit_owner', c.oid::regclass) AS statement
        FROM pg_class c
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
          AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')
    LOOP
        EXECUTE one.statement;
    END LOOP;
    IF to_regproc('receipts_refuse') IS NOT NULL THEN
        ALTER FUNCTION receipts_refuse() OWNER TO kwit_owner;
    END IF;
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO kwit_app;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO kwit_app;

-- What migrate will make.
ALTER DEFAULT PRIVILEGES FOR ROLE kwit_owner IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO kwit_app;
ALTER DEFAULT PRIVILEGES FOR ROLE kwit_owner IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO kwit_app;

-- Receipts are written and read, and nothing else. (After the first migrate: run this script once more.)
DO $$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT c.oid::regclass AS name FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
        WHERE c.relnamespace = 'public'::regnamespace AND t.tgname = c.relname || '_append_only'
    LOOP
        EXECUTE format('REVOKE UPDATE, DELETE, TRUNCATE, TRIGGER ON %s FROM kwit_app', one.name);
    END LOOP;
END $$;

COMMIT;
