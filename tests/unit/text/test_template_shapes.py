"""Templates written as those of known families are, with tools: what they use works, and costs what it may."""

from __future__ import annotations

from typing import Any

import pytest

from edge.text.template import ChatTemplate, render_chat
from edge.text.tokenizer import Tokenizer

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a place",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "description": "A town"},
                    "days": {"type": "array", "items": {"type": "integer"}},
                    "where": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]},
                },
                "required": ["place"],
            },
        },
    },
]
CALL = {"type": "function", "id": "call12345", "function": {"name": "weather", "arguments": {"place": "Rifé", "days": [1, 2]}}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " Hi & <b>bye</b> "},
    {"role": "assistant", "content": "<think>\nso\n</think>\n\nHello."},
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": '{"sky": "blue"}', "tool_call_id": "call12345"},
]

LLAMA = """{{- bos_token }}
{%- if not date_string is defined %}{%- set date_string = strftime_now("%d %b %Y") %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- endif %}
{{- "[header]system\\nEnvironment: ipython\\nToday: " + date_string + "\\n" }}
{%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n" }}{%- endfor %}
{{- system_message }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '[header]' + message['role'] + '\\n' + message['content'] | trim + '[eot]' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception("one call at once") }}{%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '{"name": "' + tool_call.name + '", "parameters": ' + tool_call.arguments | tojson + "}" }}
    {%- elif message.role == "tool" %}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}{%- endif %}
    {%- endif %}
{%- endfor %}"""

QWEN = """{%- if tools %}
    {{- '[im]system\\n' }}{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "<tools>" }}{%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}{{- "\\n</tools>" }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string
           and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning) %}
            {{- '[im]assistant\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '[im]' + message.role + '\\n' + content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls or [] %}
            {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
            {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '<tool_call>{"name": "' ~ tool_call.name ~ '", "arguments": ' }}
            {{- tool_call.arguments if tool_call.arguments is string else tool_call.arguments | tojson }}{{- '}</tool_call>' }}
        {%- endfor %}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '[im]user' }}{%- endif %}
        {{- '\\n<tool_response>' + content + '</tool_response>' }}
    {%- elif not loop.first %}
        {{- '[im]' + message.role + '\\n' + content + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '[im]assistant\\n' }}{%- endif %}"""

MISTRAL = """{%- set today = strftime_now("%Y-%m-%d") %}
{%- if messages[0]['role'] == 'system' and messages[0]['content'] is string %}
    {%- set system_message = messages[0]['content'] %}{%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set filtered_messages = [] %}
{%- for message in loop_messages %}
    {%- if message["role"] not in ["tool", "tool_results"] and not message.get("tool_calls") %}
        {%- set filtered_messages = filtered_messages + [message] %}
    {%- endif %}
{%- endfor %}
{%- for message in filtered_messages %}
    {%- if (message["role"] == "user") != (loop.index0 % 2 == 0) %}{{- raise_exception("roles alternate") }}{%- endif %}
{%- endfor %}
{{- '[SYSTEM]' + system_message + today[:2] }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {%- for tool in tools %}{%- set tool = tool.function %}
                {%- for key, val in tool.items() if key != "return" %}
                    {{- '"' + key + '": ' + ('"' + val + '"' if val is string else val|tojson) }}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
            {%- endfor %}
        {%- endif %}
        {{- '[INST]' + message['content'] + '[/INST]' }}
    {%- elif message.tool_calls is defined %}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] + ', "id": "' + tool_call.id[-9:] + '"}' }}
        {%- endfor %}
    {%- elif message['role'] == 'tool' %}
        {{- '[RESULTS] {"content": ' + message.content|string + "}" }}
    {%- else %}
        {{- message['content'] + eos_token }}
    {%- endif %}
{%- endfor %}"""

GEMMA = """{{ bos_token }}
{%- macro argument(value, keys=True) -%}
    {%- if value is string -%}{{- '"' + value + '"' -}}
    {%- elif value is boolean -%}{{- 'true' if value else 'false' -}}
    {%- elif value is mapping -%}
        {{- '{' -}}{%- set ns = namespace(found_first=false) -%}
        {%- for key, item in value | dictsort -%}
            {%- if ns.found_first %},{% endif -%}{%- set ns.found_first = true -%}
            {{- key | upper if keys else key -}}:{{- argument(item, keys=keys) -}}
        {%- endfor -%}{{- '}' -}}
    {%- elif value is sequence -%}
        [{%- for item in value -%}{{- argument(item, keys=keys) -}}{%- if not loop.last %},{% endif -%}{%- endfor -%}]
    {%- else -%}{{- value -}}{%- endif -%}
{%- endmacro -%}
{%- for tool in tools -%}
    {%- for key, property in tool['function']['parameters']['properties'] | dictsort -%}
        {%- if key not in ['description', 'type'] -%}{{- argument(property | default([])) -}}{%- endif -%}
    {%- endfor -%}
{%- endfor -%}
{%- for message in messages -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    [turn]{{ role }}
    {% if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}{{ item['text'] | trim }}{%- endfor -%}
    {%- endif -%}
    {%- for call in message['tool_calls'] or [] -%}{{ argument(call['function']['arguments'], keys=False) }}{%- endfor -%}
{%- endfor -%}
{%- if add_generation_prompt -%}[turn]model{{ ['a', 'b'] | map('upper') | join('') }}{%- endif -%}"""


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        (LLAMA, ['[header]system', '    "type": "function",', "Be brief.", "[header]user\nHi & <b>bye</b>[eot]",
                 '{"name": "weather", "parameters": {"place": "Rifé", "days": [1, 2]}}', '"{\\"sky\\": \\"blue\\"}"']),
        (QWEN, ['<tools>\n{"type": "function", "function": {"name": "weather"', "[im]assistant\nHello.", "[im]user\nWeather?\n",
                '<tool_call>{"name": "weather", "arguments": {"place": "Rifé", "days": [1, 2]}}</tool_call>',
                '[im]user\n<tool_response>{"sky": "blue"}</tool_response>[im]assistant\n']),
        (MISTRAL, ["[SYSTEM]Be brief.20", '"name": "weather", "description": "The weather of a place", "parameters": {"type"',
                   "[INST]Weather?[/INST]", '"days": [1, 2]}, "id": "call12345"}', '[RESULTS] {"content": {"sky": "blue"}}']),
        (GEMMA, ['{ITEMS:{TYPE:"integer"},TYPE:"array"}', "[turn]model\n<think>", 'place:"Rifé"', "[turn]modelAB"]),
    ],
    ids=["llama", "qwen", "mistral", "gemma"],
)  # fmt: skip
def test_a_template_of_a_known_family_renders_a_chat_with_tools(
    source: str, parts: list[str], bytes_tokenizer: Tokenizer
) -> None:
    template = ChatTemplate(source, bytes_tokenizer, "t")
    text = render_chat(template, MESSAGES, variables={"tools": TOOLS}).text
    for part in parts:
        assert part in text
    # Lists that are added to turn by turn, and a message compared with each, stay within the budget.
    turns = [
        MESSAGES[0],
        *({"role": ("user", "assistant")[n % 2], "content": f"{n} " + "and all that " * 9} for n in range(801)),
    ]
    long = render_chat(template, turns, variables={"tools": TOOLS * 20}).text
    assert long.count("and all that") == 801 * 9
