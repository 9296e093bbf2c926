from receipts.change_types import ChangeType, register

from .models import Parcel

CANCEL = register(
    ChangeType(name="cancel", model=Parcel, required_state="pending", sets={"state": "cancelled"}, tenant_field=None)
)
