"""Lists of plans: how many targets each has, and the indexes that the filters need."""

from django.db import migrations, models


def count_targets(apps, schema_editor):
    plans = apps.get_model("receipts", "StoredPlan").objects.using(schema_editor.connection.alias)
    # Key by key: a plan may have ten thousand targets.
    for pk in list(plans.filter(target_count__isnull=True).values_list("pk", flat=True)):
        targets = plans.values_list("targets", flat=True).get(pk=pk)
        plans.filter(pk=pk).update(target_count=len(targets) if isinstance(targets, list) else None)


class Migration(migrations.Migration):

    dependencies = [
        ('receipts', '0003_permissions'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='storedplan',
            options={'permissions': [('approve_plan', 'Can approve plans of others'), ('apply_plan', 'Can apply approved plans')], 'verbose_name': 'plan', 'verbose_name_plural': 'plans'},
        ),
        migrations.AddField(
            model_name='storedplan',
            name='target_count',
            field=models.IntegerField(blank=True, null=True),
        ),
        migrations.AddIndex(
            model_name='storedplan',
            index=models.Index(fields=['tenant', 'id'], name='ix_receipts_plan_tenant'),
        ),
        migrations.AddIndex(
            model_name='storedplan',
            index=models.Index(fields=['tenant', 'state', 'id'], name='ix_receipts_plan_tenant_state'),
        ),
        migrations.AddIndex(
            model_name='storedplan',
            index=models.Index(fields=['state', 'id'], name='ix_receipts_plan_state'),
        ),
        migrations.AddIndex(
            model_name='storedplan',
            index=models.Index(fields=['kind', 'id'], name='ix_receipts_plan_kind'),
        ),
        migrations.RunPython(count_targets, migrations.RunPython.noop),
    ]
