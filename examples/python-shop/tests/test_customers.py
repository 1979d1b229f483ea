import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from shop import customers
from shop.errors import EmailTaken, NotFound
from shop.models import Customer, WishlistItem


def test_register_and_find_without_case(session):
    customer = customers.register(session, " Ann@Example.com ", "Ann", country="DE")
    assert customers.find(session, "ann@example.COM").id == customer.id
    assert customer.newsletter is False
    assert customer.created_at is not None


def test_mail_address_can_be_used_once(session, make):
    make.customer("ann@example.com")
    with pytest.raises(EmailTaken):
        customers.register(session, "ANN@example.com", "Ann again", country="DE")
    assert len(session.scalars(select(Customer)).all()) == 1


def test_other_violations_are_not_taken_for_a_used_address(session):
    with pytest.raises(IntegrityError, match="customers_email_check"):
        customers.register(session, "no address", "Ann", country="DE")


def test_first_address_becomes_the_default(session, make):
    customer = make.customer()
    first = customer.addresses[0]
    second = make.address(customer)
    assert customer.default_address_id == first.id
    customers.set_default_address(session, customer, second)
    assert customer.default_address_id == second.id
    assert [address.id for address in customer.addresses] == [first.id, second.id]


def test_default_address_must_be_ones_own(session, make):
    ann, bob = make.customer(), make.customer()
    with pytest.raises(NotFound):
        customers.set_default_address(session, ann, bob.addresses[0])


def test_closed_account_is_anonymous_and_frees_its_address(session, make):
    customer = make.customer("ann@example.com")
    order = make.order(customer=customer)
    customers.close_account(session, customer)
    assert customers.find(session, "ann@example.com") is None
    assert "ann" not in customer.email
    assert order.customer_id == customer.id
    again = customers.register(session, "ann@example.com", "Ann", country="DE")
    assert again.id != customer.id


def test_names_keep_their_letters(session):
    customer = customers.register(session, "z@example.com", "Zo\u00eb \u0141 \u732b", country="FR")
    session.expire_all()
    assert customer.name == "Zo\u00eb \u0141 \u732b"


def test_wishing_twice_is_wishing_once(session, make):
    customer, variant = make.customer(), make.variant()
    first = customers.wish(session, customer, variant)
    assert customers.wish(session, customer, variant).id == first.id
    assert customers.wished(session, first) == [variant]


def test_wish_lists_are_separate(session, make):
    customer, red, blue = make.customer(), make.variant(), make.variant()
    mine = customers.wish(session, customer, red)
    gifts = customers.wish(session, customer, blue, "gifts")
    customers.wish(session, customer, red, "gifts")
    assert customers.wished(session, mine) == [red]
    assert customers.wished(session, gifts) == [blue, red]


def test_wishes_end_with_their_variant(session, make):
    customers.wish(session, make.customer(), variant := make.variant(price=None, pieces=0))
    session.delete(variant)
    session.commit()
    assert session.scalars(select(WishlistItem)).all() == []
