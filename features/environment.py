"""What holds for every scenario: a deadline, and nothing left behind at its end."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys

# Before anything imports LangChain: no scenario reports to a tracing service.
os.environ.update(LANGSMITH_TRACING="false", LANGCHAIN_TRACING_V2="false")

from behave import register_type, use_step_matcher
from behave.formatter.progress import ProgressFormatterBase
from behave.matchers import register_step_matcher_class
from behave.model import Feature, Scenario
from behave.model_type import Status
from behave.runner import Context

from rxlanggraph.bridge import loops
from rxlanggraph.concurrency.interpreter import gil_enabled
from rxlanggraph.testing import LeakCheck
from support import step_types
from support.controls.expected_failure import honour_expected_failures
from support.live import browser
from support.servers import servers
from support.step_matcher import ByBeginning

# Seconds. The slowest scenario takes a quarter of it on two quiet cores.
DEADLINE = float(os.environ.get("RXLANGGRAPH_SCENARIO_DEADLINE", "300"))
# Seconds that what is left on a loop gets to end when the loop stops: on a busy machine it may take
# longer than the product waits, and would be left behind.
LAST_ROUND = 20.0
register_step_matcher_class(ByBeginning.NAME, ByBeginning)
use_step_matcher(ByBeginning.NAME)
register_type(Text=step_types.text, Times=step_types.times)


def before_all(context: Context) -> None:
    honour_expected_failures()
    loops._LAST_ROUND = LAST_ROUND
    # A shell starts what is in its background with Ctrl-C ignored; what a scenario starts inherits
    # that, and is to be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Without this, behave 1.3.3 dies where a progress formatter meets a cleanup that failed.
    ProgressFormatterBase.dot_status.setdefault(Status.cleanup_error, "C")
    # Where one scenario is chosen by its name, no other feature is to be heard of.
    features = context._runner.features
    features[:] = [feature for feature in features if is_chosen(feature, context)] or features


def is_chosen(feature: Feature, context: Context) -> bool:
    return any(each.should_run(context.config) for each in feature.walk_scenarios())


def before_scenario(context: Context, scenario: Scenario) -> None:
    if "counted_references" in scenario.effective_tags and not gil_enabled():
        scenario.skip("without the GIL, functions are freed by the cyclic collector alone")
        return
    # Behave has its own sys.stderr by now; the stacks must reach the real one.
    faulthandler.dump_traceback_later(DEADLINE, exit=True, file=sys.__stderr__)
    context.add_cleanup(faulthandler.cancel_dump_traceback_later)
    # Before the check looks: a server outlives the scenario that was the first to need it.
    servers.start_for(scenario)
    browser.start_for(scenario)
    # What lives before a scenario is not left by it. Frozen, it is not looked at by the check:
    # above all, modules that scenarios have imported are hundreds of thousands of objects.
    gc.collect()
    gc.freeze()
    # Cleanups run last in, first out, after `after_scenario`: those of the steps come before it.
    context.add_cleanup(LeakCheck(ignore=tolerated(scenario)).start().verify)


def after_feature(context: Context, feature: Feature) -> None:
    browser.stop()


def after_all(context: Context) -> None:
    servers.stop()


def tolerated(scenario: Scenario) -> list[str]:
    """What a control leaves behind on purpose: its tags ``@tolerates:WORD``, as patterns."""
    tags = (tag.partition(":") for tag in scenario.effective_tags)
    return [f"*{word}*" for name, _, word in tags if name == "tolerates"]
