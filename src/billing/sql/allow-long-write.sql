-- Lets the statements of this transaction take ten minutes each: a day has millions of charges. The
-- caller has locked the progress of the days.
select set_config('statement_timeout', '10min', true)
from usage_progress;
