"""The models of docs/own-step.md; a test compares them with what stands there."""

import uuid

from django.db import models


class Customer(models.Model):
    name = models.CharField(max_length=100)
    email = models.EmailField()
    accountant = models.EmailField(blank=True)
    language = models.CharField(max_length=10, blank=True)

    def __str__(self) -> str:
        return self.name


class Invoice(models.Model):
    number = models.CharField(max_length=20, unique=True)
    customer = models.ForeignKey(Customer, on_delete=models.PROTECT)
    amount = models.DecimalField(max_digits=12, decimal_places=2)
    issued_at = models.DateTimeField(db_index=True)
    due_on = models.DateField(db_index=True)
    paid_at = models.DateTimeField(null=True, blank=True)
    pdf = models.FileField(upload_to="invoices", blank=True)

    def __str__(self) -> str:
        return self.number


class Ticket(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    title = models.CharField(max_length=200)
    customer = models.ForeignKey(Customer, on_delete=models.PROTECT)
    opened_at = models.DateTimeField(db_index=True)
    answered = models.BooleanField(default=False)

    def __str__(self) -> str:
        return self.title
