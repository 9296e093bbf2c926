"""What is asked of many receipts: the list under each filter, the latest verdict, and runs of ``reconcile --all``."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Max, OuterRef, Subquery

from ..fields import ExactCharField, UtcDateTimeField, UtcNow

CHUNK_ROWS = 500


def name_tenants_and_verdicts(apps, schema_editor):
    """Give earlier reconciliations their tenant, and each of their receipts its verdict."""
    change, reconciliation, verdict = (
        apps.get_model("receipts", name) for name in ("Change", "Reconciliation", "Verdict")
    )
    alias = schema_editor.connection.alias
    kept = reconciliation.objects.using(alias)
    tenant = change.objects.filter(pk=OuterRef("change_id")).values("tenant")[:1]
    kept.update(tenant=Subquery(tenant))
    latest = kept.order_by().values("change_id").annotate(last=Max("pk")).values_list("last", flat=True)
    last = 0
    while rows := list(
        kept.filter(pk__in=latest, pk__gt=last).order_by("pk").select_related("change").defer("items")[:CHUNK_ROWS]
    ):
        verdict.objects.using(alias).bulk_create(
            verdict(
                change_id=row.change_id,
                kind=row.change.kind,
                tenant=row.change.tenant,
                created_at=row.change.created_at,
                reconciliation=row,
                found="differs" if row.changed or row.missing else "match",
            )
            for row in rows
        )
        last = rows[-1].pk


class Migration(migrations.Migration):

    dependencies = [
        ('receipts', '0004_plan_lists'),
    ]

    operations = [
        migrations.CreateModel(
            name='ReconciliationRun',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('scope', ExactCharField(blank=True, db_default='', max_length=64)),
                ('tenants', models.JSONField(blank=True, null=True)),
                ('actor', models.CharField(blank=True, db_default='', max_length=150)),
                ('outcome', models.CharField(choices=[('running', 'Running'), ('done', 'Done'), ('stopped', 'Stopped'), ('failed', 'Failed'), ('died', 'Died')], db_default='running', max_length=10)),
                ('total', models.BigIntegerField(blank=True, null=True)),
                ('done', models.BigIntegerField(db_default=0)),
                ('differing', models.BigIntegerField(db_default=0)),
                ('undeclared', models.BigIntegerField(db_default=0)),
                ('started_at', UtcDateTimeField(db_default=UtcNow())),
                ('beat_at', UtcDateTimeField(db_default=UtcNow())),
                ('ended_at', UtcDateTimeField(blank=True, null=True)),
                ('host', models.CharField(blank=True, db_default='', max_length=255)),
                ('pid', models.BigIntegerField(blank=True, null=True)),
                ('error', models.TextField(blank=True, db_default='')),
            ],
            options={
                'verbose_name': 'reconciliation of all',
                'verbose_name_plural': 'reconciliations of all',
                'db_table': 'receipts_reconciliation_run',
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='Verdict',
            fields=[
                ('change', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='verdict', serialize=False, to='receipts.change')),
                ('kind', ExactCharField(max_length=20)),
                ('tenant', ExactCharField(max_length=64)),
                ('created_at', UtcDateTimeField()),
                ('found', models.CharField(choices=[('match', 'Match'), ('differs', 'Differs')], max_length=10)),
            ],
            options={
                'db_table': 'receipts_verdict',
                'default_permissions': (),
            },
        ),
        migrations.RemoveIndex(
            model_name='change',
            name='ix_receipts_change_tenant',
        ),
        migrations.AddField(
            model_name='reconciliation',
            name='tenant',
            field=ExactCharField(blank=True, db_default='', max_length=64),
        ),
        migrations.AddIndex(
            model_name='change',
            index=models.Index(fields=['created_at', 'change_id'], name='ix_receipts_change_created'),
        ),
        migrations.AddIndex(
            model_name='change',
            index=models.Index(fields=['kind', 'created_at', 'change_id'], name='ix_receipts_change_kind'),
        ),
        migrations.AddIndex(
            model_name='change',
            index=models.Index(fields=['tenant', 'created_at', 'change_id'], name='ix_receipts_change_tenant'),
        ),
        migrations.AddIndex(
            model_name='change',
            index=models.Index(fields=['tenant', 'kind', 'created_at', 'change_id'], name='ix_receipts_change_both'),
        ),
        migrations.AddIndex(
            model_name='reconciliation',
            index=models.Index(fields=['tenant', 'id'], name='ix_receipts_recon_tenant'),
        ),
        migrations.AddIndex(
            model_name='reconciliationrun',
            index=models.Index(fields=['scope', 'id'], name='ix_receipts_run_scope'),
        ),
        migrations.AddConstraint(
            model_name='reconciliationrun',
            constraint=models.CheckConstraint(condition=models.Q(('outcome__in', ['running', 'done', 'stopped', 'failed', 'died'])), name='ck_receipts_run_outcome'),
        ),
        migrations.AddConstraint(
            model_name='reconciliationrun',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('outcome', 'running')), models.Q(models.Q(('outcome', 'running'), _negated=True), ('ended_at__isnull', False)), _connector='OR'), name='ck_receipts_run_ended'),
        ),
        migrations.AddConstraint(
            model_name='reconciliationrun',
            constraint=models.UniqueConstraint(condition=models.Q(('outcome', 'running')), fields=('scope',), name='uq_receipts_run_running'),
        ),
        migrations.AddField(
            model_name='verdict',
            name='reconciliation',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='receipts.reconciliation'),
        ),
        migrations.AddIndex(
            model_name='verdict',
            index=models.Index(fields=['found', 'created_at', 'change'], name='ix_receipts_verdict'),
        ),
        migrations.AddIndex(
            model_name='verdict',
            index=models.Index(fields=['found', 'tenant', 'created_at', 'change'], name='ix_receipts_verdict_tenant'),
        ),
        migrations.AddConstraint(
            model_name='verdict',
            constraint=models.CheckConstraint(condition=models.Q(('found__in', ['match', 'differs'])), name='ck_receipts_verdict_found'),
        ),
        migrations.RunPython(name_tenants_and_verdicts, migrations.RunPython.noop),
    ]
