# A loop with a tool, and a structured answer.
import instructor
from openai import OpenAI
from pydantic import BaseModel


class weather(BaseModel):
    """The weather of a city"""

    city: str


client = instructor.from_openai(OpenAI(), mode=instructor.Mode.TOOLS)
asked = client.create(
    model="haiku",
    response_model=weather,
    messages=[{"role": "user", "content": "Ask weather for Bern"}],
)
print("weather answered: sunny in", asked.city)
client = instructor.from_openai(OpenAI(), mode=instructor.Mode.JSON_SCHEMA)
parsed = client.create(
    model="haiku", response_model=weather, messages=[{"role": "user", "content": "A city"}]
)
print("parsed:", parsed.city)
