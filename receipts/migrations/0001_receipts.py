"""The tables of receipts, audit rows, stored plans and reconciliations."""

import django.db.models.deletion
from ..fields import ExactCharField, UtcDateTimeField, UtcNow
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Change',
            fields=[
                ('change_id', ExactCharField(max_length=64, primary_key=True, serialize=False)),
                ('kind', ExactCharField(max_length=20)),
                ('tenant', ExactCharField(max_length=64)),
                ('targets', models.JSONField()),
                ('digest', models.CharField(max_length=64)),
                ('actor', models.CharField(blank=True, db_default='', max_length=150)),
                ('reason', models.TextField(blank=True, db_default='')),
                ('created_at', UtcDateTimeField(db_default=UtcNow())),
            ],
            options={
                'verbose_name': 'receipt',
                'db_table': 'receipts_changes',
                'indexes': [models.Index(fields=['tenant', 'created_at'], name='ix_receipts_change_tenant')],
                'constraints': [models.CheckConstraint(condition=models.Q(('change_id', ''), _negated=True), name='ck_receipts_change_id')],
            },
        ),
        migrations.CreateModel(
            name='StoredPlan',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('change_id', ExactCharField(max_length=64)),
                ('kind', ExactCharField(max_length=20)),
                ('tenant', ExactCharField(max_length=64)),
                ('targets', models.JSONField()),
                ('digest', models.CharField(max_length=64)),
                ('state', models.CharField(choices=[('draft', 'Draft'), ('approved', 'Approved'), ('applied', 'Applied'), ('refused', 'Refused')], db_default='draft', max_length=10)),
                ('author', models.CharField(max_length=150)),
                ('approver', models.CharField(blank=True, db_default='', max_length=150)),
                ('approved_digest', models.CharField(blank=True, db_default='', max_length=64)),
                ('approved_at', UtcDateTimeField(blank=True, null=True)),
                ('reason', models.TextField(blank=True, db_default='')),
                ('problems', models.JSONField(blank=True, null=True)),
                ('created_at', UtcDateTimeField(db_default=UtcNow())),
                ('decided_at', UtcDateTimeField(blank=True, null=True)),
            ],
            options={
                'verbose_name': 'plan',
                'db_table': 'receipts_plan',
                'indexes': [models.Index(fields=['change_id'], name='ix_receipts_plan_change')],
                'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['draft', 'approved', 'applied', 'refused'])), name='ck_receipts_plan_state'), models.CheckConstraint(condition=models.Q(models.Q(('author', ''), _negated=True), models.Q(('approver', models.F('author')), _negated=True)), name='ck_receipts_plan_four_eyes'), models.CheckConstraint(condition=models.Q(models.Q(('approved_at__isnull', True), ('approved_digest', ''), ('approver', ''), ('state', 'draft')), models.Q(models.Q(('state', 'draft'), _negated=True), models.Q(('approver', ''), _negated=True), ('approved_at__isnull', False), ('approved_digest', models.F('digest'))), _connector='OR'), name='ck_receipts_plan_approval'), models.CheckConstraint(condition=models.Q(models.Q(('decided_at__isnull', True), ('state__in', ['draft', 'approved'])), models.Q(('decided_at__isnull', False), ('state', 'applied')), models.Q(('decided_at__isnull', False), ('problems__isnull', False), ('state', 'refused')), _connector='OR'), name='ck_receipts_plan_decided')],
            },
        ),
        migrations.CreateModel(
            name='Audit',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('target_id', models.BigIntegerField()),
                ('revision_before', models.BigIntegerField()),
                ('revision_after', models.BigIntegerField()),
                ('qty', models.BigIntegerField()),
                ('state_before', models.CharField(max_length=40)),
                ('state_after', models.CharField(max_length=40)),
                ('change', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='audit', to='receipts.change')),
            ],
            options={
                'verbose_name': 'audit row',
                'db_table': 'receipts_audit',
                'constraints': [models.UniqueConstraint(fields=('change', 'target_id'), name='uq_receipts_audit_target'), models.CheckConstraint(condition=models.Q(('revision_after__gt', models.F('revision_before'))), name='ck_receipts_audit_revision')],
            },
        ),
        migrations.CreateModel(
            name='Reconciliation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('taken_at', UtcDateTimeField(db_default=UtcNow())),
                ('actor', models.CharField(blank=True, db_default='', max_length=150)),
                ('match', models.IntegerField()),
                ('changed', models.IntegerField()),
                ('missing', models.IntegerField()),
                ('items', models.JSONField()),
                ('change', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='reconciliations', to='receipts.change')),
            ],
            options={
                'db_table': 'receipts_reconciliation',
                'indexes': [models.Index(fields=['change', 'taken_at'], name='ix_receipts_reconciliation')],
                'constraints': [models.CheckConstraint(condition=models.Q(('changed__gte', 0), ('match__gte', 0), ('missing__gte', 0)), name='ck_receipts_reconciliation_counts')],
            },
        ),
    ]
