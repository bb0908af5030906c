-- The procedures of shared state in PostgreSQL. One call is one statement, so one transaction.
-- A migration runs all of this again (schema.py); one that changes the signature of a function has to
-- drop it first.
--
-- Each statement in here sees what was committed before that statement began (READ COMMITTED, which
-- the connections require), so data read after taking a lock stays valid while the lock is held.
--
-- Locks, in the order in which they are taken, and all of them held until the transaction ends:
-- 1. Names (of keys and of locks): by each call that draws a version or token for one. Locks on
--    1,024 buckets in ascending order, so that many names need few locks. Numbers are drawn under
--    the lock, so that even the first version of a new name is lower than all later ones.
-- 2. The claims of a queue: by claims with a limit, and by renewals with one that make a task claimed
--    again. So the number of claimed tasks does not grow between counting and claiming. By the name
--    of the queue, which may be deleted and made anew meanwhile.
-- 3. A queue: exclusively by calls that add, requeue or purge; shared by calls that end a task of a
--    thread or sweep. So the order of adding is the order of commits, and the next task of a thread
--    is not unblocked while another one is being added behind it.
-- 4. Rows. Claiming and sweeping skip those that are locked.

-- Of versions and tokens (rule 3 of the contract).
CREATE SEQUENCE IF NOT EXISTS rxlanggraph_counter;

CREATE OR REPLACE FUNCTION rxlanggraph_now() RETURNS double precision LANGUAGE sql VOLATILE AS $$
    SELECT extract(epoch FROM clock_timestamp())::double precision
$$;

CREATE OR REPLACE FUNCTION rxlanggraph_hold_names(names text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1920494187, bucket)
    FROM (SELECT DISTINCT hashtext(name) & 1023 AS bucket FROM unnest(names) AS name
          ORDER BY bucket) AS buckets;
END $$;

CREATE OR REPLACE FUNCTION rxlanggraph_hold_claims(space text, queue_name text) RETURNS void
LANGUAGE sql AS $$
    SELECT pg_advisory_xact_lock(1920494189, hashtext(space || '/' || queue_name))
$$;

CREATE OR REPLACE FUNCTION rxlanggraph_hold_queue(queue_id integer) RETURNS void LANGUAGE sql AS $$
    SELECT pg_advisory_xact_lock(1920494193, queue_id)
$$;

CREATE OR REPLACE FUNCTION rxlanggraph_share_queue(queue_id integer) RETURNS void LANGUAGE sql AS $$
    SELECT pg_advisory_xact_lock_shared(1920494193, queue_id)
$$;


-- Keys --------------------------------------------------------------------------------------------

-- Returns when a row whose key is gone at a date is no longer needed; NULL: not known yet.
CREATE OR REPLACE FUNCTION rxlanggraph_forget(gone double precision, fence bigint) RETURNS double precision
LANGUAGE sql IMMUTABLE AS $$
    SELECT gone + CASE WHEN fence IS NULL THEN 0 ELSE {fence_retention} END
$$;

CREATE OR REPLACE FUNCTION rxlanggraph_commit(
    space text, names text[], items text[], ttls double precision[], tokens bigint[],
    checked text[], expected bigint[],
    OUT outcome text, OUT stale text, OUT befores bigint[], OUT afters bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    moment double precision;
    passing bigint;
BEGIN
    PERFORM rxlanggraph_hold_names(ARRAY(
        SELECT space || '/' || name FROM unnest(names || checked) AS name
    ));
    moment := rxlanggraph_now();

    SELECT e.key INTO stale
    FROM unnest(names, tokens) AS change (name, token)
    JOIN rxlanggraph_entries e ON e.namespace = space AND e.key = change.name
    WHERE e.fence > change.token LIMIT 1;
    IF FOUND THEN
        outcome := 'stale';
        RETURN;
    END IF;

    IF EXISTS (
        SELECT FROM unnest(checked, expected) AS checks (name, version)
        LEFT JOIN rxlanggraph_entries e ON e.namespace = space AND e.key = checks.name
            AND e.item IS NOT NULL AND (e.expires IS NULL OR e.expires > moment)
        WHERE coalesce(e.version, 0) <> checks.version
    ) THEN
        outcome := 'changed';
        RETURN;
    END IF;

    befores := ARRAY(
        SELECT coalesce(e.version, 0)
        FROM unnest(names) WITH ORDINALITY AS change (name, place)
        LEFT JOIN rxlanggraph_entries e ON e.namespace = space AND e.key = change.name
            AND e.item IS NOT NULL AND (e.expires IS NULL OR e.expires > moment)
        ORDER BY change.place
    );

    WITH written AS (
        INSERT INTO rxlanggraph_entries AS e
            (namespace, key, item, version, expires, fence, forget)
        SELECT space, name, item, nextval('rxlanggraph_counter'), moment + ttl, token,
            rxlanggraph_forget(CASE WHEN item IS NULL THEN moment ELSE moment + ttl END, token)
        FROM unnest(names, items, ttls, tokens) AS change (name, item, ttl, token)
        ON CONFLICT (namespace, key) DO UPDATE SET
            item = excluded.item, version = excluded.version, expires = excluded.expires,
            fence = coalesce(excluded.fence, e.fence),
            forget = rxlanggraph_forget(
                CASE WHEN excluded.item IS NULL THEN moment ELSE excluded.expires END,
                coalesce(excluded.fence, e.fence)
            )
        RETURNING key, CASE WHEN item IS NULL THEN 0 ELSE version END AS version
    )
    SELECT coalesce(array_agg(written.version ORDER BY change.place), '{}') INTO afters
    FROM unnest(names) WITH ORDINALITY AS change (name, place)
    JOIN written ON written.key = change.name;

    IF array_position(items, NULL) IS NOT NULL THEN
        DELETE FROM rxlanggraph_entries
        WHERE namespace = space AND key = ANY (names) AND item IS NULL AND fence IS NULL;
    END IF;
    SELECT count(*) INTO passing FROM unnest(items, ttls) AS change (item, ttl)
    WHERE item IS NULL OR ttl IS NOT NULL;
    IF passing > 0 THEN
        -- Each write of a key that expires deletes two such rows, so that they do not pile up.
        DELETE FROM rxlanggraph_entries WHERE (namespace, key) IN (
            SELECT namespace, key FROM rxlanggraph_entries
            WHERE forget <= moment ORDER BY forget LIMIT 2 * passing FOR UPDATE SKIP LOCKED
        );
    END IF;
    outcome := 'done';
END $$;

CREATE OR REPLACE FUNCTION rxlanggraph_increment(
    space text, name text, step bigint, writer bigint, OUT outcome text, OUT total bigint
) LANGUAGE plpgsql AS $$
DECLARE
    old rxlanggraph_entries;
    result numeric := step;
BEGIN
    PERFORM pg_advisory_xact_lock(1920494187, hashtext(space || '/' || name) & 1023);
    SELECT * INTO old FROM rxlanggraph_entries WHERE namespace = space AND key = name;
    IF old.fence > writer THEN
        outcome := 'stale';
        RETURN;
    END IF;
    IF old.item IS NULL OR old.expires <= rxlanggraph_now() THEN
        old.expires := NULL;
    ELSIF old.item !~ '^-?[0-9]+$' THEN
        outcome := 'type';
        RETURN;
    ELSE
        result := old.item::numeric + step;
        IF old.item::numeric NOT BETWEEN -9223372036854775808 AND 9223372036854775807
            OR result NOT BETWEEN -9223372036854775808 AND 9223372036854775807
        THEN
            outcome := 'range';
            RETURN;
        END IF;
    END IF;
    INSERT INTO rxlanggraph_entries AS e (namespace, key, item, version, expires, fence)
    VALUES (space, name, result::text, nextval('rxlanggraph_counter'), old.expires, writer)
    ON CONFLICT (namespace, key) DO UPDATE SET
        item = excluded.item, version = excluded.version, expires = excluded.expires,
        fence = coalesce(excluded.fence, e.fence),
        forget = rxlanggraph_forget(excluded.expires, coalesce(excluded.fence, e.fence));
    outcome := 'done';
    total := result;
END $$;


-- Locks -------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION rxlanggraph_lock_acquire(
    space text, name text, taker text, ttl double precision
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    held rxlanggraph_locks;
    moment double precision;
BEGIN
    PERFORM pg_advisory_xact_lock(1920494187, hashtext(space || '/' || name) & 1023);
    -- Locks the row too, as the holder may be renewing it.
    SELECT * INTO held FROM rxlanggraph_locks WHERE namespace = space AND key = name FOR UPDATE;
    moment := rxlanggraph_now();
    IF held.expires > moment AND held.owner <> taker THEN
        RETURN NULL;
    END IF;
    IF held.expires <= moment OR held.token IS NULL THEN
        held.token := nextval('rxlanggraph_counter');
    END IF;
    INSERT INTO rxlanggraph_locks (namespace, key, owner, token, expires)
    VALUES (space, name, taker, held.token, moment + ttl)
    ON CONFLICT (namespace, key) DO UPDATE SET
        owner = excluded.owner, token = excluded.token, expires = excluded.expires;
    -- Each acquisition deletes two expired locks, so that they do not pile up.
    DELETE FROM rxlanggraph_locks WHERE (namespace, key) IN (
        SELECT namespace, key FROM rxlanggraph_locks
        WHERE expires <= moment ORDER BY expires LIMIT 2 FOR UPDATE SKIP LOCKED
    );
    RETURN held.token;
END $$;


-- Work --------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION rxlanggraph_queue(space text, queue_name text) RETURNS integer
LANGUAGE sql AS $$
    SELECT id FROM rxlanggraph_queues WHERE namespace = space AND name = queue_name
$$;

-- Procedures for many tasks look each of them up by a subquery of its own, not by a join: without
-- statistics, as in a table that has grown within a minute, PostgreSQL takes a queue for one task, and
-- joins by comparing each of the given tasks with each of the queue.

-- Has the statements of this transaction planned for the table as it is now: PostgreSQL keeps the plan
-- of a statement in a procedure, which may have been made while the table was small. Only for many
-- tasks: planning takes as long as some of them.
CREATE OR REPLACE FUNCTION rxlanggraph_plan_for(count integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF count > 20 THEN
        PERFORM set_config('plan_cache_mode', 'force_custom_plan', true);
    END IF;
END $$;

-- Unblocks the first unfinished task of each thread, if it is blocked. Each is looked up in an index,
-- also by a plan that was made while the table was small: for one thread, planning each time would
-- take longer than all else.
CREATE OR REPLACE FUNCTION rxlanggraph_unblock(queue_id integer, threads text[], moment double precision)
RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off AS $$
BEGIN
    UPDATE rxlanggraph_tasks AS t
    SET state = CASE WHEN t.due > moment THEN 'delayed' ELSE 'ready' END
    FROM (SELECT DISTINCT unnest(threads) AS thread) AS line
    CROSS JOIN LATERAL (
        SELECT seq FROM rxlanggraph_tasks
        WHERE queue = queue_id AND thread = line.thread AND state NOT IN ('completed', 'dead')
        ORDER BY seq LIMIT 1
    ) AS first
    WHERE t.seq = first.seq AND t.state || '' = 'blocked'; -- not in the index of blocked tasks
END $$;

-- Sweeps one step, the tasks first that fell due first; returns whether there is more.
CREATE OR REPLACE FUNCTION rxlanggraph_sweep(queue_id integer, moment double precision)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    threads text[];
    count integer;
BEGIN
    PERFORM rxlanggraph_plan_for({max_per_step});
    PERFORM rxlanggraph_share_queue(queue_id);
    WITH overdue AS (
        SELECT seq, state = 'claimed' AND attempts >= max_attempts AS is_used_up
        FROM rxlanggraph_tasks
        WHERE queue = queue_id AND state IN ('delayed', 'claimed') AND due <= moment
        ORDER BY due LIMIT {max_per_step}
        FOR UPDATE SKIP LOCKED
    ), swept AS (
        UPDATE rxlanggraph_tasks AS t SET
            state = CASE WHEN is_used_up THEN 'dead' ELSE 'ready' END,
            ended = CASE WHEN is_used_up THEN t.due END,
            token = CASE WHEN is_used_up THEN NULL ELSE token END,
            error = CASE WHEN is_used_up THEN NULL ELSE error END
        FROM overdue WHERE t.seq = overdue.seq
        RETURNING t.thread, is_used_up
    )
    SELECT count(*), array_agg(thread) FILTER (WHERE is_used_up AND thread IS NOT NULL)
    INTO count, threads FROM swept;
    IF threads IS NOT NULL THEN
        PERFORM rxlanggraph_unblock(queue_id, threads, moment);
    END IF;
    RETURN count = {max_per_step};
END $$;

CREATE OR REPLACE FUNCTION rxlanggraph_sweep_step(space text, queue_name text) RETURNS boolean
LANGUAGE sql AS $$
    SELECT rxlanggraph_sweep(rxlanggraph_queue(space, queue_name), rxlanggraph_now())
$$;

CREATE OR REPLACE FUNCTION rxlanggraph_tasks_add(
    space text, queue_name text, ids text[], items text[], keys text[], priorities integer[],
    delays double precision[], threads text[], caps integer[]
) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    queue_id integer;
    moment double precision;
BEGIN
    LOOP
        queue_id := rxlanggraph_queue(space, queue_name);
        IF queue_id IS NULL THEN
            -- A random number: clients remember it, and no later queue may have the same, not even
            -- in tables that are recreated while clients use them.
            INSERT INTO rxlanggraph_queues (id, namespace, name)
            VALUES (floor(random() * 2147483647)::integer, space, queue_name)
            ON CONFLICT DO NOTHING;
        ELSE
            PERFORM rxlanggraph_hold_queue(queue_id);
            -- Repeat if it was deleted meanwhile, as an empty queue.
            EXIT WHEN queue_id = rxlanggraph_queue(space, queue_name);
        END IF;
    END LOOP;
    moment := rxlanggraph_now();
    PERFORM rxlanggraph_plan_for(cardinality(ids));
    INSERT INTO rxlanggraph_tasks
        (queue, id, key, thread, priority, state, due, attempts, max_attempts, added, item)
    SELECT queue_id, id, key, thread, priority,
        CASE WHEN thread IS NOT NULL THEN 'blocked' WHEN delay > 0 THEN 'delayed' ELSE 'ready' END,
        moment + delay, 0, cap, moment, item
    FROM unnest(ids, items, keys, priorities, delays, threads, caps)
        WITH ORDINALITY AS new (id, item, key, priority, delay, thread, cap, place)
    ORDER BY place
    ON CONFLICT DO NOTHING;
    PERFORM rxlanggraph_unblock(queue_id, array_remove(threads, NULL), moment);
    RETURN ARRAY(
        SELECT coalesce(
            (SELECT same.id FROM rxlanggraph_tasks AS same
             WHERE same.queue = queue_id AND same.id = new.id),
            (SELECT known.id FROM rxlanggraph_tasks AS known
             WHERE known.queue = queue_id AND known.key = new.key)
        )
        FROM unnest(ids, keys) WITH ORDINALITY AS new (id, key, place)
        ORDER BY place
    );
END $$;

-- Whether another transaction has locked tasks that a claim could take, and may leave some.
CREATE OR REPLACE FUNCTION rxlanggraph_is_held(queue_id integer, moment double precision) RETURNS boolean
LANGUAGE sql AS $$
    SELECT EXISTS (SELECT FROM rxlanggraph_tasks WHERE queue = queue_id AND state = 'ready')
        OR EXISTS (
            SELECT FROM rxlanggraph_tasks
            WHERE queue = queue_id AND state IN ('delayed', 'claimed') AND due <= moment
        )
$$;

-- Claims one task for each of the workers, as far as there are tasks; returns each with the position
-- of its worker. If there is none, but more has to be swept (0), or another transaction has locked
-- some (1): a row with that number as its `attempts`, and nothing else.
CREATE OR REPLACE FUNCTION rxlanggraph_tasks_claim(
    space text, queue_name text, claimers text[], leases double precision[]
) RETURNS TABLE (
    place integer, id text, item text, key text, thread text, attempts integer, token bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    queue_id integer := rxlanggraph_queue(space, queue_name);
    moment double precision := rxlanggraph_now();
    is_more boolean := false;
BEGIN
    IF EXISTS (
        SELECT FROM rxlanggraph_tasks
        WHERE queue = queue_id AND state IN ('delayed', 'claimed') AND due <= moment
    ) THEN
        -- Before any row is locked, as it takes the lock of the queue.
        is_more := rxlanggraph_sweep(queue_id, moment);
    END IF;
    FOR claimer IN 1 .. cardinality(claimers) LOOP
        RETURN QUERY UPDATE rxlanggraph_tasks AS t SET
            state = 'claimed', attempts = t.attempts + 1, worker = claimers[claimer],
            token = nextval('rxlanggraph_counter'), due = rxlanggraph_now() + leases[claimer],
            claimed = rxlanggraph_now()
        WHERE seq = (
            SELECT seq FROM rxlanggraph_tasks
            WHERE queue = queue_id AND state = 'ready'
            ORDER BY priority DESC, seq LIMIT 1
            FOR UPDATE SKIP LOCKED
        )
        RETURNING claimer, t.id, t.item, t.key, t.thread, t.attempts, t.token;
        IF NOT FOUND THEN
            IF claimer = 1 AND (is_more OR rxlanggraph_is_held(queue_id, moment)) THEN
                RETURN QUERY SELECT NULL::integer, NULL, NULL, NULL, NULL,
                    CASE WHEN is_more THEN 0 ELSE 1 END, NULL::bigint;
            END IF;
            EXIT;
        END IF;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION rxlanggraph_task_claim(
    space text, queue_name text, claimer text, lease double precision
) RETURNS TABLE (id text, item text, key text, thread text, attempts integer, token bigint)
LANGUAGE sql AS $$
    SELECT id, item, key, thread, attempts, token
    FROM rxlanggraph_tasks_claim(space, queue_name, ARRAY[claimer], ARRAY[lease])
$$;

CREATE OR REPLACE FUNCTION rxlanggraph_tasks_claim(
    space text, queue_name text, claimer text, lease double precision, most integer
) RETURNS TABLE (id text, item text, key text, thread text, attempts integer, token bigint)
LANGUAGE sql AS $$
    SELECT id, item, key, thread, attempts, token
    FROM rxlanggraph_tasks_claim(
        space, queue_name, array_fill(claimer, ARRAY[most]), array_fill(lease, ARRAY[most])
    )
    ORDER BY place
$$;

-- Counts the claimed tasks but the one with this token, up to a limit. Those whose lease is over
-- count until they are swept: another transaction may be renewing them.
CREATE OR REPLACE FUNCTION rxlanggraph_count_claimed(queue_id integer, holder bigint, most integer)
RETURNS integer LANGUAGE sql AS $$
    SELECT count(*)::integer FROM (
        SELECT FROM rxlanggraph_tasks
        WHERE queue = queue_id AND state = 'claimed' AND (holder IS NULL OR token <> holder)
        ORDER BY token LIMIT most
    ) AS claimed
$$;

-- Claims as `rxlanggraph_tasks_claim` does, at most so many that `most` tasks are claimed.
CREATE OR REPLACE FUNCTION rxlanggraph_tasks_claim_within(
    space text, queue_name text, claimers text[], leases double precision[], most integer
) RETURNS TABLE (
    place integer, id text, item text, key text, thread text, attempts integer, token bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    queue_id integer;
    moment double precision;
    is_more boolean := false;
    room integer;
BEGIN
    PERFORM rxlanggraph_hold_claims(space, queue_name);
    queue_id := rxlanggraph_queue(space, queue_name);
    moment := rxlanggraph_now();
    IF EXISTS (
        SELECT FROM rxlanggraph_tasks
        WHERE queue = queue_id AND state IN ('delayed', 'claimed') AND due <= moment
    ) THEN
        is_more := rxlanggraph_sweep(queue_id, moment);
    END IF;
    room := most - rxlanggraph_count_claimed(queue_id, NULL, most);
    IF room > 0 THEN
        RETURN QUERY SELECT * FROM rxlanggraph_tasks_claim(
            space, queue_name, claimers[1:room], leases[1:room]
        );
    ELSIF is_more OR EXISTS (
        SELECT FROM rxlanggraph_tasks
        WHERE queue = queue_id AND state IN ('delayed', 'claimed') AND state = 'claimed'
            AND due <= moment
    ) THEN
        RETURN QUERY SELECT NULL::integer, NULL, NULL, NULL, NULL,
            CASE WHEN is_more THEN 0 ELSE 1 END, NULL::bigint;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION rxlanggraph_tasks_claim_within(
    space text, queue_name text, claimer text, lease double precision, count integer, most integer
) RETURNS TABLE (id text, item text, key text, thread text, attempts integer, token bigint)
LANGUAGE sql AS $$
    SELECT id, item, key, thread, attempts, token
    FROM rxlanggraph_tasks_claim_within(
        space, queue_name, array_fill(claimer, ARRAY[count]), array_fill(lease, ARRAY[count]), most
    )
    ORDER BY place
$$;

-- Returns queue and thread of a task, and takes the lock of the queue that ending the task needs.
CREATE OR REPLACE FUNCTION rxlanggraph_ending(
    space text, queue_name text, task_id text, OUT queue_id integer, OUT line text
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT t.queue, t.thread INTO queue_id, line
    FROM rxlanggraph_queues q JOIN rxlanggraph_tasks t ON t.queue = q.id
    WHERE q.namespace = space AND q.name = queue_name AND t.id = task_id;
    IF line IS NOT NULL THEN
        PERFORM rxlanggraph_share_queue(queue_id);
    END IF;
END $$;

-- Whether a token is still current: not if the lease of the last attempt is over.
CREATE OR REPLACE FUNCTION rxlanggraph_is_current(task rxlanggraph_tasks) RETURNS boolean
LANGUAGE sql AS $$
    SELECT task.state = 'ready' OR task.state = 'claimed'
        AND (task.attempts < task.max_attempts OR task.due > rxlanggraph_now())
$$;

-- Renews a lease; a task that was swept is claimed again, if fewer than `most` others are claimed.
CREATE OR REPLACE FUNCTION rxlanggraph_task_renew_within(
    space text, queue_name text, task_id text, holder bigint, lease double precision, most integer
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    queue_id integer := rxlanggraph_queue(space, queue_name);
BEGIN
    UPDATE rxlanggraph_tasks AS t SET due = rxlanggraph_now() + lease
    WHERE queue = queue_id AND id = task_id AND token = holder AND state = 'claimed'
        AND rxlanggraph_is_current(t);
    IF FOUND THEN
        RETURN true;
    END IF;
    PERFORM rxlanggraph_hold_claims(space, queue_name);
    PERFORM rxlanggraph_share_queue(queue_id);
    -- The only row that is waited for, so it is locked before those that are swept.
    PERFORM FROM rxlanggraph_tasks WHERE queue = queue_id AND id = task_id AND token = holder
    FOR UPDATE;
    PERFORM rxlanggraph_sweep(queue_id, rxlanggraph_now());
    IF rxlanggraph_count_claimed(queue_id, holder, most) = most THEN
        RETURN false;
    END IF;
    UPDATE rxlanggraph_tasks AS t SET state = 'claimed', due = rxlanggraph_now() + lease
    WHERE queue = queue_id AND id = task_id AND token = holder AND rxlanggraph_is_current(t);
    RETURN FOUND;
END $$;

CREATE OR REPLACE FUNCTION rxlanggraph_task_complete(
    space text, queue_name text, task_id text, holder bigint, outcome text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    task record := rxlanggraph_ending(space, queue_name, task_id);
BEGIN
    UPDATE rxlanggraph_tasks AS t SET
        state = 'completed', result = outcome, ended = rxlanggraph_now()
    WHERE queue = task.queue_id AND id = task_id AND token = holder AND rxlanggraph_is_current(t);
    IF NOT FOUND THEN
        RETURN EXISTS (
            SELECT FROM rxlanggraph_tasks
            WHERE queue = task.queue_id AND id = task_id AND token = holder AND state = 'completed'
        );
    END IF;
    IF task.line IS NOT NULL THEN
        PERFORM rxlanggraph_unblock(task.queue_id, ARRAY[task.line], rxlanggraph_now());
    END IF;
    RETURN true;
END $$;

-- Completes each of the tasks whose token is current; returns for each whether it is complete.
CREATE OR REPLACE FUNCTION rxlanggraph_tasks_complete(
    space text, queue_name text, ids text[], holders bigint[], outcomes text[]
) RETURNS boolean[] LANGUAGE plpgsql AS $$
DECLARE
    queue_id integer := rxlanggraph_queue(space, queue_name);
    seqs bigint[];
    has_threads boolean;
    lines text[];
BEGIN
    PERFORM rxlanggraph_plan_for(cardinality(ids));
    SELECT
        array_agg(known.seq ORDER BY done.place), coalesce(bool_or(known.thread IS NOT NULL), false)
    INTO seqs, has_threads
    FROM unnest(ids) WITH ORDINALITY AS done (id, place)
    LEFT JOIN LATERAL (
        SELECT seq, thread FROM rxlanggraph_tasks
        WHERE queue = queue_id AND id = done.id OFFSET 0
    ) AS known ON true;
    IF has_threads THEN
        PERFORM rxlanggraph_share_queue(queue_id);
    END IF;
    WITH ended AS (
        UPDATE rxlanggraph_tasks AS t SET
            state = 'completed', result = done.outcome, ended = rxlanggraph_now()
        FROM unnest(seqs, ids, holders, outcomes) AS done (seq, id, holder, outcome)
        WHERE t.seq = done.seq AND t.id = done.id AND t.token = done.holder
            AND rxlanggraph_is_current(t)
        RETURNING t.thread
    )
    SELECT array_agg(thread) FILTER (WHERE thread IS NOT NULL) INTO lines FROM ended;
    IF lines IS NOT NULL THEN
        PERFORM rxlanggraph_unblock(queue_id, lines, rxlanggraph_now());
    END IF;
    RETURN ARRAY(
        SELECT coalesce((
            SELECT t.token = done.holder AND t.state = 'completed' FROM rxlanggraph_tasks AS t
            WHERE t.queue = queue_id AND t.id = done.id
        ), false)
        FROM unnest(ids, holders) WITH ORDINALITY AS done (id, holder, place)
        ORDER BY done.place
    );
END $$;

CREATE OR REPLACE FUNCTION rxlanggraph_task_fail(
    space text, queue_name text, task_id text, holder bigint, reason text,
    retry_in double precision
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    task record := rxlanggraph_ending(space, queue_name, task_id);
BEGIN
    UPDATE rxlanggraph_tasks AS t SET
        state = CASE WHEN attempts >= max_attempts OR retry_in IS NULL THEN 'dead'
            WHEN retry_in > 0 THEN 'delayed' ELSE 'ready' END,
        error = reason, token = NULL, due = rxlanggraph_now() + coalesce(retry_in, 0),
        ended = CASE WHEN attempts >= max_attempts OR retry_in IS NULL THEN rxlanggraph_now() END
    WHERE queue = task.queue_id AND id = task_id AND token = holder AND rxlanggraph_is_current(t);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF task.line IS NOT NULL THEN
        PERFORM rxlanggraph_unblock(task.queue_id, ARRAY[task.line], rxlanggraph_now());
    END IF;
    RETURN true;
END $$;

CREATE OR REPLACE FUNCTION rxlanggraph_task_release(
    space text, queue_name text, task_id text, holder bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE rxlanggraph_tasks AS t SET
        state = 'ready', attempts = attempts - 1, token = NULL, due = rxlanggraph_now()
    WHERE queue = rxlanggraph_queue(space, queue_name) AND id = task_id AND token = holder
        AND rxlanggraph_is_current(t);
    RETURN FOUND;
END $$;

-- Ends tasks that are neither completed nor dead; returns how many.
CREATE OR REPLACE FUNCTION rxlanggraph_tasks_cancel(
    space text, queue_name text, ids text[], reason text
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    queue_id integer := rxlanggraph_queue(space, queue_name);
    moment double precision := rxlanggraph_now();
    threads text[];
    count integer;
BEGIN
    PERFORM rxlanggraph_plan_for(cardinality(ids));
    PERFORM rxlanggraph_share_queue(queue_id);
    WITH ended AS (
        UPDATE rxlanggraph_tasks SET
            state = 'dead', error = reason, token = NULL, due = moment, ended = moment
        WHERE queue = queue_id AND id = ANY (ids) AND state NOT IN ('completed', 'dead')
        RETURNING thread
    )
    SELECT count(*), array_agg(DISTINCT thread) FILTER (WHERE thread IS NOT NULL)
    INTO count, threads FROM ended;
    PERFORM rxlanggraph_unblock(queue_id, threads, moment);
    RETURN count;
END $$;

-- Puts dead tasks back, in this order. Under the lock of the queue.
CREATE OR REPLACE FUNCTION rxlanggraph_put_back(queue_id integer, seqs bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    moment double precision := rxlanggraph_now();
    threads text[] := '{}';
    line text;
BEGIN
    FOR place IN 1 .. coalesce(cardinality(seqs), 0) LOOP
        UPDATE rxlanggraph_tasks SET
            seq = DEFAULT,
            state = CASE WHEN thread IS NULL THEN 'ready' ELSE 'blocked' END,
            attempts = 0, worker = NULL, error = NULL, due = moment, claimed = NULL, ended = NULL
        WHERE seq = seqs[place] RETURNING thread INTO line;
        threads := array_append(threads, line);
    END LOOP;
    PERFORM rxlanggraph_unblock(queue_id, array_remove(threads, NULL), moment);
END $$;

CREATE OR REPLACE FUNCTION rxlanggraph_tasks_requeue(space text, queue_name text, ids text[])
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    queue_id integer := rxlanggraph_queue(space, queue_name);
    seqs bigint[];
BEGIN
    PERFORM rxlanggraph_plan_for(cardinality(ids));
    PERFORM rxlanggraph_hold_queue(queue_id);
    -- Each task is looked up by its id, not in the index of dead tasks.
    seqs := ARRAY(
        SELECT t.seq FROM (SELECT DISTINCT unnest(ids) AS id) AS wanted
        CROSS JOIN LATERAL (
            SELECT seq, state FROM rxlanggraph_tasks
            WHERE queue = queue_id AND id = wanted.id OFFSET 0
        ) AS t
        WHERE t.state = 'dead' ORDER BY t.seq
    );
    PERFORM rxlanggraph_put_back(queue_id, seqs);
    RETURN cardinality(seqs);
END $$;

-- Puts back some of the tasks that were dead at the first step. Returns for the next step the last
-- task that was put back, and the last of all; NULL at the end.
CREATE OR REPLACE FUNCTION rxlanggraph_tasks_requeue_step(
    space text, queue_name text, first bigint, final bigint,
    OUT count integer, OUT last bigint, OUT until bigint
) LANGUAGE plpgsql AS $$
DECLARE
    queue_id integer := rxlanggraph_queue(space, queue_name);
    seqs bigint[];
BEGIN
    PERFORM rxlanggraph_plan_for({max_per_step});
    PERFORM rxlanggraph_hold_queue(queue_id);
    until := coalesce(final, (
        SELECT seq FROM rxlanggraph_tasks WHERE queue = queue_id AND state = 'dead'
        ORDER BY seq DESC LIMIT 1
    ));
    seqs := ARRAY(
        SELECT seq FROM rxlanggraph_tasks
        WHERE queue = queue_id AND state = 'dead' AND seq > first AND seq <= until
        ORDER BY seq LIMIT {max_per_step}
    );
    PERFORM rxlanggraph_put_back(queue_id, seqs);
    count := cardinality(seqs);
    last := CASE WHEN count = {max_per_step} THEN seqs[count] END;
END $$;

-- Reads some of the tasks, by their ids, and deletes those in these states. Returns for the next
-- step the last task that was read, and the last of all; NULL at the end.
CREATE OR REPLACE FUNCTION rxlanggraph_tasks_purge_step(
    space text, queue_name text, states text[], first text, final text,
    OUT count integer, OUT last text, OUT until text
) LANGUAGE plpgsql AS $$
DECLARE
    queue_id integer := rxlanggraph_queue(space, queue_name);
    seqs bigint[];
    ids text[];
    threads text[];
BEGIN
    PERFORM rxlanggraph_plan_for({max_per_step});
    PERFORM rxlanggraph_hold_queue(queue_id);
    until := coalesce(final, (
        SELECT id FROM rxlanggraph_tasks WHERE queue = queue_id ORDER BY id DESC LIMIT 1
    ));
    SELECT array_agg(t.id ORDER BY t.id), array_agg(t.seq) INTO ids, seqs FROM (
        SELECT id, seq FROM rxlanggraph_tasks
        WHERE queue = queue_id AND id > first AND id <= until
        ORDER BY id LIMIT {max_per_step}
    ) AS t;
    WITH gone AS (
        DELETE FROM rxlanggraph_tasks WHERE seq = ANY (seqs) AND state = ANY (states)
        RETURNING thread
    )
    SELECT count(*), array_agg(DISTINCT thread) FILTER (WHERE thread IS NOT NULL)
    INTO count, threads FROM gone;
    PERFORM rxlanggraph_unblock(queue_id, threads, rxlanggraph_now());
    IF cardinality(ids) = {max_per_step} THEN
        last := ids[cardinality(ids)];
    ELSE
        DELETE FROM rxlanggraph_queues WHERE rxlanggraph_queues.id = queue_id
            AND NOT EXISTS (SELECT FROM rxlanggraph_tasks WHERE queue = queue_id);
    END IF;
END $$;

-- Deletes the tasks among these that are in these states; returns how many.
CREATE OR REPLACE FUNCTION rxlanggraph_tasks_delete(
    space text, queue_name text, ids text[], states text[]
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    queue_id integer := rxlanggraph_queue(space, queue_name);
    threads text[];
    count integer;
BEGIN
    PERFORM rxlanggraph_plan_for(cardinality(ids));
    PERFORM rxlanggraph_hold_queue(queue_id);
    WITH gone AS (
        DELETE FROM rxlanggraph_tasks
        WHERE queue = queue_id AND id = ANY (ids) AND state = ANY (states)
        RETURNING thread
    )
    SELECT count(*), array_agg(DISTINCT thread) FILTER (WHERE thread IS NOT NULL)
    INTO count, threads FROM gone;
    PERFORM rxlanggraph_unblock(queue_id, threads, rxlanggraph_now());
    DELETE FROM rxlanggraph_queues WHERE id = queue_id
        AND NOT EXISTS (SELECT FROM rxlanggraph_tasks WHERE queue = queue_id);
    RETURN count;
END $$;
