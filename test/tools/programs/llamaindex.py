# A loop with a tool, and a structured answer.
import os

from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel


def weather(city: str) -> str:
    """The weather of a city"""
    return "sunny in " + city


class City(BaseModel):
    """A city"""

    name: str


llm = OpenAILike(
    model="haiku",
    api_base=os.environ["OPENAI_BASE_URL"],
    is_chat_model=True,
    is_function_calling_model=True,
    context_window=200000,
)
tools = [FunctionTool.from_defaults(weather)]
answer = llm.predict_and_call(tools, user_msg="Ask weather for Bern")
print("weather answered:", answer.response)
print("parsed:", llm.as_structured_llm(City).complete("A city").raw.name)
