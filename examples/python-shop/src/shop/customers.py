"""Accounts, addresses and wish lists."""

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from .clock import utcnow
from .db import atomic, violates
from .errors import EmailTaken, NotFound
from .models import Address, Customer, Variant, Wishlist, WishlistItem


@atomic
def register(
    session: Session, email: str, name: str, *, country: str, newsletter: bool = False
) -> Customer:
    """Open an account. Email addresses are case-insensitive."""
    customer = Customer(
        email=email.strip(), name=name.strip(), country_code=country, newsletter=newsletter
    )
    try:
        with session.begin_nested():
            session.add(customer)
    except IntegrityError as error:
        if violates(error, "customers_email_open_key"):
            raise EmailTaken(email) from error
        raise
    return customer


def find(session: Session, email: str) -> Customer | None:
    """Return the open account with this email address."""
    return session.scalar(
        select(Customer).where(
            func.lower(Customer.email) == email.strip().lower(), Customer.closed_at.is_(None)
        )
    )


@atomic
def add_address(
    session: Session,
    customer: Customer,
    *,
    line1: str,
    postcode: str,
    city: str,
    country: str | None = None,
    recipient: str | None = None,
    line2: str | None = None,
) -> Address:
    """Store an address. A customer's first address becomes the default."""
    address = Address(
        customer=customer,
        recipient=recipient or customer.name,
        line1=line1,
        line2=line2,
        postcode=postcode,
        city=city,
        country_code=country or customer.country_code,
    )
    session.add(address)
    session.flush()
    if customer.default_address_id is None:
        customer.default_address_id = address.id
    return address


@atomic
def set_default_address(session: Session, customer: Customer, address: Address) -> None:
    if address.customer_id != customer.id:
        raise NotFound("address of this customer", address.id)
    customer.default_address_id = address.id


@atomic
def close_account(session: Session, customer: Customer) -> None:
    """Erase the customer's identity, but keep the row that orders refer to."""
    customer.name = "closed account"
    customer.email = f"closed-{customer.id}@invalid"
    customer.phone = None
    customer.newsletter = False
    customer.closed_at = utcnow()


@atomic
def wish(session: Session, customer: Customer, variant: Variant, name: str = "default") -> Wishlist:
    """Put a variant on a list, unless it is already there. Creates the list if necessary."""
    session.execute(
        insert(Wishlist)
        .values(customer_id=customer.id, name=name)
        .on_conflict_do_nothing(index_elements=["customer_id", "name"])
    )
    wishlist = session.scalars(
        select(Wishlist).where(Wishlist.customer_id == customer.id, Wishlist.name == name)
    ).one()
    session.execute(
        insert(WishlistItem)
        .values(wishlist_id=wishlist.id, variant_id=variant.id)
        .on_conflict_do_nothing()
    )
    return wishlist


def wished(session: Session, wishlist: Wishlist) -> list[Variant]:
    return list(
        session.scalars(
            select(Variant)
            .join(WishlistItem, WishlistItem.variant_id == Variant.id)
            .where(WishlistItem.wishlist_id == wishlist.id)
            .order_by(WishlistItem.added_at, Variant.id)
        )
    )
