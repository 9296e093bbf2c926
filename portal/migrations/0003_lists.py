"""Indexes for the lists of orders and lines."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('portal', '0002_contact_timezone'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='order',
            index=models.Index(fields=['number'], name='ix_portal_order_number'),
        ),
        migrations.AddIndex(
            model_name='orderline',
            index=models.Index(fields=['tenant', 'id'], name='ix_portal_line_tenant'),
        ),
        migrations.AddIndex(
            model_name='orderline',
            index=models.Index(fields=['state', 'id'], name='ix_portal_line_state'),
        ),
    ]
