"""What transformers makes of templates; needs transformers and jinja2."""
import copy
import datetime

from transformers.utils import chat_template_utils

import conversations


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(conversations.NOW, tz)


chat_template_utils.datetime = Clock


def render(template, variables):
    """The text, or None where the template is refused."""
    try:
        return chat_template_utils._compile_jinja_template(template).render(**variables)
    except Exception:
        return None


def render_chat(template, messages, tools, variables):
    """The text, or None; as apply_chat_template calls it."""
    messages = chat_template_utils._normalize_chat_messages(copy.deepcopy(messages))
    try:
        return chat_template_utils.render_jinja_template(
            conversations=[messages], tools=tools, chat_template=template,
            **{**conversations.TOKENS, **variables})[0][0]
    except Exception:
        return None
