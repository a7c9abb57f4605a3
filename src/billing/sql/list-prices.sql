-- Lists every price at which a request was ever admitted, by model, newest first.
select price_version, model, each_category(#), created_at
from price_versions
order by model, created_at desc;
