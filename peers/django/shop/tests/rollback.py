from django.test import TestCase

from ..models import Customer, Order


class Orders(TestCase):
    def order(self, number):
        customer = Customer.objects.create(name="Ada", email="ada@example.org")
        Order.objects.create(customer=customer, cents=number)
        self.assertEqual([order.cents for order in Order.objects.all()], [number])


for number in range(30):
    setattr(Orders, f"test_{number}", lambda self, number=number: self.order(number))
