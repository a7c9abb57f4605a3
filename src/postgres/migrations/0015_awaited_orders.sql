-- A reader of Bitcoin asks each time whether an order waits, among all that ever were.
create index payment_orders_awaited on payment_orders (processor, network)
  where state in ('open', 'seen');
