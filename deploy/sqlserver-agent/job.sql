-- A SQL Server Agent job that runs a notification pass every minute. Run it in msdb on the server whose Agent shall
-- start the pass; Python, the project and its .env stand on that machine. Kwit's own database may be any that it runs on.
-- The server is one on Windows: its Agent has no CmdExec on Linux, where cron or systemd start the pass.
USE msdb;

EXEC dbo.sp_add_job
    @job_name = N'Kwit notification pass',
    @description = N'One message for each business event; see notify_run_log for what each pass did.';

-- The job step: type "Operating system (CmdExec)", run as a proxy with few rights.
EXEC dbo.sp_add_jobstep
    @job_name = N'Kwit notification pass',
    @step_name = N'pass',
    @subsystem = N'CmdExec',
    @command = N'cmd /c cd /d C:\kwit && .venv\Scripts\python.exe manage.py notify_pass --json',
    @cmdexec_success_code = 0;

EXEC dbo.sp_add_jobschedule
    @job_name = N'Kwit notification pass',
    @name = N'every minute',
    @freq_type = 4, @freq_interval = 1,
    @freq_subday_type = 4, @freq_subday_interval = 1;

EXEC dbo.sp_add_jobserver @job_name = N'Kwit notification pass';
