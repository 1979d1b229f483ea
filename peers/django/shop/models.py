from django.db import models


class Country(models.Model):
    code = models.CharField(max_length=2, primary_key=True)
    name = models.TextField()


class Currency(models.Model):
    code = models.CharField(max_length=3, primary_key=True)
    name = models.TextField()


class Customer(models.Model):
    name = models.TextField()
    email = models.TextField(unique=True)


class Address(models.Model):
    customer = models.ForeignKey(Customer, models.CASCADE)
    country = models.ForeignKey(Country, models.CASCADE, null=True)
    street = models.TextField()


class Supplier(models.Model):
    name = models.TextField(unique=True)


class Category(models.Model):
    name = models.TextField(unique=True)
    parent = models.ForeignKey("self", models.CASCADE, null=True)


class Product(models.Model):
    supplier = models.ForeignKey(Supplier, models.CASCADE, null=True)
    category = models.ForeignKey(Category, models.CASCADE, null=True)
    name = models.TextField(unique=True)


class Price(models.Model):
    product = models.ForeignKey(Product, models.CASCADE)
    currency = models.ForeignKey(Currency, models.CASCADE, null=True)
    cents = models.IntegerField()


class Warehouse(models.Model):
    name = models.TextField(unique=True)


class Stock(models.Model):
    warehouse = models.ForeignKey(Warehouse, models.CASCADE)
    product = models.ForeignKey(Product, models.CASCADE)
    quantity = models.IntegerField()


class Cart(models.Model):
    customer = models.ForeignKey(Customer, models.CASCADE)


class CartItem(models.Model):
    cart = models.ForeignKey(Cart, models.CASCADE)
    product = models.ForeignKey(Product, models.CASCADE)
    quantity = models.IntegerField()


class Order(models.Model):
    customer = models.ForeignKey(Customer, models.CASCADE)
    cents = models.IntegerField()


class OrderItem(models.Model):
    order = models.ForeignKey(Order, models.CASCADE)
    product = models.ForeignKey(Product, models.CASCADE, null=True)
    quantity = models.IntegerField()


class Invoice(models.Model):
    order = models.OneToOneField(Order, models.CASCADE)
    number = models.TextField(unique=True)


class Payment(models.Model):
    invoice = models.ForeignKey(Invoice, models.CASCADE)
    cents = models.IntegerField()


class Shipment(models.Model):
    order = models.ForeignKey(Order, models.CASCADE)
    address = models.ForeignKey(Address, models.CASCADE, null=True)


class Coupon(models.Model):
    code = models.TextField(unique=True)
    percent = models.IntegerField()


class Review(models.Model):
    product = models.ForeignKey(Product, models.CASCADE)
    customer = models.ForeignKey(Customer, models.CASCADE)
    stars = models.IntegerField()


class Event(models.Model):
    kind = models.TextField()
    at = models.DateTimeField(auto_now_add=True)
