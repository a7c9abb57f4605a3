-- Lists what the simulated processor was made to report of an order besides deposits.
-- $1 order_id
select fault from simulated_faults where order_id = $1 order by fault;
