"""Nothing forward. Back: refused while there are rows, because the next pass would send every message once more."""

from django.db import migrations

from kwit.db.migrations import refuse_while_rows


class Migration(migrations.Migration):
    dependencies = [("notify", "0001_initial")]

    operations = [
        migrations.RunPython(
            migrations.RunPython.noop,
            refuse_while_rows("notify", "forget which events were notified, and every message would be sent again"),
        )
    ]
