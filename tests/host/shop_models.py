from django.db import models


class Parcel(models.Model):
    number = models.CharField(max_length=20)
    email = models.EmailField()
    language = models.CharField(max_length=10, blank=True)
    weight = models.DecimalField(max_digits=8, decimal_places=2)
    late_since = models.DateTimeField(db_index=True)
    state = models.CharField(max_length=10, default="pending")
    revision = models.IntegerField(default=0)
    qty = models.IntegerField(default=1)

    class Meta:
        app_label = "shop"

    def __str__(self) -> str:
        return self.number
