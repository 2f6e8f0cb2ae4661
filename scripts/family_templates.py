"""Chat templates of the model families.

The published templates belong to their models and are not stored here. `--families FOLDER` of make_template_fixtures.py
reads them from a folder and writes the texts that transformers renders from them, with their SHA-256. Each entry here has
our own short template for conversations without tools. The script checks that it renders the same texts, and refuses
the same conversations.
"""


def chatml(default=None, start=""):
    """Turns between <|im_start|> and <|im_end|>, with a default system prompt."""
    first = "" if default is None else (
        "{% if messages[0].role != 'system' %}<|im_start|>system\n" + default + "<|im_end|>\n{% endif %}")
    return (start + first + "{% for turn in messages %}<|im_start|>{{ turn.role }}\n{{ turn.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


# Refuses conversations in which user and assistant do not take turns.
TURNS = "{% if (turn.role == 'user') != loop.index0 is even %}{{ raise_exception('turns') }}{% endif %}"
SPLIT = ("{% set has_system = messages[0].role == 'system' %}{% set turns = messages[1:] if has_system else messages %}"
         "{% set system = messages[0].content %}")


def llama2(start, each, default=""):
    """Llama 2: the system prompt is part of the first question."""
    system = SPLIT + (f"{{% if not has_system and '<<SYS>>' not in system %}}{{% set system = {default!r} %}}{{% set has_system = true %}}{{% endif %}}"
                      if default else "")
    return (system + start + "{% for turn in turns %}" + TURNS +
            "{% set head = '<<SYS>>\n' ~ system ~ '\n<</SYS>>\n\n' if loop.first and has_system else '' %}"
            "{% if turn.role == 'user' %}" + each + "[INST] {{ (head ~ turn.content).strip() }} [/INST]"
            "{% elif turn.role == 'assistant' %} {{ turn.content.strip() }} {{ eos_token }}{% endif %}{% endfor %}")


def gemma(start):
    return ("{% if messages[0].role == 'system' %}{{ raise_exception('system') }}{% endif %}" + start + "{% for turn in messages %}" + TURNS +
            "<start_of_turn>{{ 'model' if turn.role == 'assistant' else turn.role }}\n{{ turn.content | trim }}<end_of_turn>\n{% endfor %}"
            "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}")


GEMMA3 = (SPLIT + "{{ bos_token }}{% for turn in turns %}" + TURNS +
          "<start_of_turn>{{ 'model' if turn.role == 'assistant' else turn.role }}\n"
          "{{ system ~ '\n\n' if loop.first and has_system else '' }}{{ turn.content | trim }}<end_of_turn>\n{% endfor %}"
          "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}")
# The model card's date is fixed; other templates of the series write the current one.
LLAMA31 = ("{{ bos_token }}" + SPLIT + "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
           "Today Date: 26 Jul 2024\n\n{{ system | trim if has_system else '' }}<|eot_id|>{% for turn in turns %}<|start_header_id|>{{ turn.role }}<|end_header_id|>\n\n"
           "{{ turn.content | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}")
LLAMA3 = ("{{ bos_token }}{% for turn in messages %}<|start_header_id|>{{ turn.role }}<|end_header_id|>\n\n{{ turn.content | trim }}<|eot_id|>{% endfor %}"
          "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}")
COMMAND_R = (SPLIT + "{{ bos_token }}{% if has_system %}<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>{{ system }}<|END_OF_TURN_TOKEN|>{% endif %}"
             "{% for turn in turns %}" + TURNS + "<|START_OF_TURN_TOKEN|><|{{ {'user': 'USER', 'assistant': 'CHATBOT'}[turn.role] }}_TOKEN|>"
             "{{ turn.content.strip() }}<|END_OF_TURN_TOKEN|>{% endfor %}{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}")
DEEPSEEK_CODER_SYSTEM = (
    "You are an AI programming assistant, utilizing the Deepseek Coder model, developed by Deepseek Company, and you only answer questions related "
    "to computer science. For politically sensitive questions, security and privacy issues, and other non-computer science questions, you will "
    "refuse to answer\n")
DEEPSEEK_CODER = ("{{ bos_token }}{% if messages | selectattr('role', 'equalto', 'system') | list | length == 0 %}" + DEEPSEEK_CODER_SYSTEM + "{% endif %}"
                  "{% for turn in messages %}{% if turn.role == 'system' %}{{ turn.content }}{% elif turn.role == 'user' %}### Instruction:\n{{ turn.content }}\n"
                  "{% else %}### Response:\n{{ turn.content }}\n<|EOT|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}### Response:\n{% endif %}")
DEEPSEEK2 = ("{{ bos_token }}{% for turn in messages %}{% if turn.role == 'user' %}User: {{ turn.content }}\n\n"
             "{% elif turn.role == 'assistant' %}Assistant: {{ turn.content }}{{ eos_token }}{% else %}{{ turn.content }}\n\n{% endif %}{% endfor %}"
             "{% if add_generation_prompt %}Assistant:{% endif %}")
DEEPSEEK3 = ("{{ bos_token }}{{ messages | selectattr('role', 'equalto', 'system') | map(attribute='content') | join('\n\n') }}{% for turn in messages %}"
             "{% if turn.role == 'user' %}<｜User｜>{{ turn.content }}{% elif turn.role == 'assistant' %}<｜Assistant｜>{{ turn.content }}<｜end▁of▁sentence｜>"
             "{% endif %}{% endfor %}{% if add_generation_prompt %}<｜Assistant｜>{% endif %}")
CHATGLM3 = ("{% for turn in messages %}{{ '[gMASK]sop' if loop.first }}<|{{ turn.role }}|>\n {{ turn.content }}{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")
GLM4 = ("[gMASK]<sop>{% for turn in messages if turn.content %}<|{{ turn.role }}|>\n{{ turn.content }}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}")
GRANITE = ("{% for turn in messages %}<|start_of_role|>{{ turn.role }}<|end_of_role|>{{ turn.content }}<|end_of_text|>\n{% endfor %}"
           "{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}")
GRANITE_MOE = (SPLIT + "<|start_of_role|>system<|end_of_role|>{% if has_system %}{{ system }}{% else %}Knowledge Cutoff Date: April 2024.\nToday's Date: "
               "{{ strftime_now('%B %d, %Y') }}.\nYou are Granite, developed by IBM. You are a helpful AI assistant.{% endif %}<|end_of_text|>\n"
               + GRANITE.replace("messages", "turns"))
MINICPM = ("{% for turn in messages %}{% if turn.role == 'user' %}<用户>{{ turn.content.strip() }}<AI>{% else %}{{ turn.content.strip() }}{% endif %}"
           "{% endfor %}")
MISTRAL = ("{{ bos_token }}{% for turn in messages %}" + TURNS + "{% if turn.role == 'user' %}[INST] {{ turn.content }} [/INST]"
           "{% elif turn.role == 'assistant' %}{{ turn.content }}{{ eos_token }} {% else %}{{ raise_exception('role') }}{% endif %}{% endfor %}")
MIXTRAL = (SPLIT + "{{ bos_token }}{% for turn in turns %}" + TURNS + "{% if turn.role == 'user' %} [INST] {{ system ~ '\n\n' if loop.first and has_system else '' }}{{ turn.content }} [/INST]"
           "{% else %} {{ turn.content }}{{ eos_token }}{% endif %}{% endfor %}")
OLMO = ("{{ eos_token }}{% for turn in messages %}{% if turn.role == 'user' %}<|user|>\n{{ turn.content }}\n{% elif turn.role == 'assistant' %}"
        "<|assistant|>\n{{ turn.content }}{{ eos_token }}\n{% endif %}{% if loop.last and add_generation_prompt %}<|assistant|>\n{% endif %}{% endfor %}")
OLMO2 = ("{{ bos_token }}{% for turn in messages %}<|{{ turn.role }}|>\n{{ turn.content }}{{ eos_token if turn.role == 'assistant' }}"
         "{{ '\n' if turn.role != 'assistant' or not loop.last }}{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}")
ORION = ("{{ bos_token }}{% for turn in messages %}{% if turn.role == 'user' %}Human: {{ turn.content }}\n\nAssistant: {{ eos_token }}"
         "{% elif turn.role == 'assistant' %}{{ turn.content }}{{ eos_token }}{% endif %}{% endfor %}")
PHI3 = ("{% for turn in messages %}<|{{ turn.role }}|>\n{{ turn.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}")
PHI4 = ("{% for turn in messages %}{% if turn.role == 'assistant' %}{{ turn.content }}<|im_end|>{% else %}<|im_start|>{{ turn.role }}<|im_sep|>{{ turn.content }}<|im_end|>"
        "{% if turn.role == 'user' %}<|im_start|>assistant<|im_sep|>{% endif %}{% endif %}{% endfor %}")
QWEN15 = ("{% if messages[0].role != 'system' %}<|im_start|>system\nYou are a helpful assistant<|im_end|>\n{% endif %}{% for turn in messages %}"
          "<|im_start|>{{ turn.role }}\n{{ turn.content }}{% if add_generation_prompt or not loop.last %}<|im_end|>\n{% endif %}{% endfor %}"
          "{% if add_generation_prompt and messages[-1].role != 'assistant' %}<|im_start|>assistant\n{% endif %}")
QWEN3 = ("{% for turn in messages %}<|im_start|>{{ turn.role }}\n{{ turn.content if turn.role != 'assistant' or not loop.last else '<think>\n\n</think>\n\n' ~ turn.content }}"
         "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
STARCODER2 = ("{{ bos_token }}You are an exceptionally intelligent coding assistant that consistently delivers accurate and reliable responses to "
              "user instructions.\n\n{% for turn in messages %}{% if turn.role == 'system' %}{{ raise_exception('system') }}{% elif turn.role == 'user' %}"
              "### Instruction\n{{ turn.content }}\n\n{% else %}### Response\n{{ turn.content }}{{ eos_token }}\n\n{% endif %}{% endfor %}### Response{{ '\n' }}")
YI = ("{% for turn in messages %}{% if loop.first and turn.role == 'system' %}{{ turn.content }}{% elif turn.role == 'user' %}<|im_start|>user\n{{ turn.content }}<|im_end|>\n<|im_start|>assistant\n"
      "{% elif turn.role == 'assistant' %}{{ turn.content }}<|im_end|>\n{% endif %}{% endfor %}")
FALCON = ("{% for turn in messages %}{{ {'user': 'User: \n', 'system': 'System: ', 'assistant': 'Falcon:\n'}[turn.role] }}{{ turn.content }}\n{% endfor %}"
          "{% if add_generation_prompt %}Falcon:\n{% endif %}")
FALCON_RW = ("{% for turn in messages %}{% if loop.index > 1 and loop.previtem.role != 'assistant' %} {% endif %}{% if turn.role == 'assistant' %}[RESP] {{ turn.content }}{{ eos_token }}"
             "{% else %}[{{ 'SYS' if turn.role == 'system' else 'INST' }}] {{ turn.content.strip() }}{% endif %}{% endfor %}"
             "{% if add_generation_prompt %} [RESP] {% endif %}")
QWEN25 = chatml("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.")
VIGOGNE = ("Vous êtes Vigogne, un assistant IA créé par Zaion Lab. Vous suivez extrêmement bien les instructions. Aidez autant que vous le pouvez.")

# name: published model, file in FOLDER, template
FAMILIES = {
    "chatglm3": ("THUDM/chatglm3-6b", "ChatGLM3", CHATGLM3),
    "glm4": ("THUDM/glm-4-9b-chat", "ChatGLM4", GLM4),
    "command-r": ("CohereForAI/c4ai-command-r-v01", "ollama_command-r-35b", COMMAND_R),
    "deepseek-coder": ("deepseek-ai/deepseek-coder-33b-instruct", "deepseek-ai_deepseek-coder-33b-instruct", DEEPSEEK_CODER),
    "deepseek-v2": ("deepseek-ai/DeepSeek-V2-Lite-Chat", "DeepSeek-V2", DEEPSEEK2),
    "deepseek-v3": ("deepseek-ai/DeepSeek-V3", "ollama_deepseek-v3-671b", DEEPSEEK3),
    "falcon": ("tiiuae/falcon-11B, as packaged for chat", "ollama_falcon2-11b", FALCON),
    "falcon-rw": ("ericzzz/falcon-rw-1b-chat", "hub_ericzzz_falcon-rw-1b-chat", FALCON_RW),
    "gemma": ("google/gemma-7b-it", "google_gemma-7b-it", gemma("")),
    "gemma2": ("google/gemma-2-2b-it", "ollama_gemma2-2b", gemma("{{ bos_token }}")),
    "gemma3": ("google/gemma-3-270m-it", "ollama_gemma3-270m", GEMMA3),
    "granite": ("ibm-granite/granite-3.0-2b-instruct", "ollama_granite3-dense-2b", GRANITE),
    "granite-moe": ("ibm-granite/granite-3.1-1b-a400m-instruct", "ollama_granite3.1-moe-1b", GRANITE_MOE),
    "internlm2": ("internlm/internlm2-chat-1_8b", "ollama_internlm2-1.8b", chatml(start="{{ bos_token }}")),
    "llama2": ("meta-llama/Llama-2-7b-chat-hf", "ollama_llama2-7b", llama2("", "{{ bos_token }}")),
    "llama3": ("meta-llama/Meta-Llama-3-8B-Instruct", "ollama_llama3-8b", LLAMA3),
    "llama3.1": ("meta-llama/Llama-3.1-8B-Instruct", "ollama_llama3.1-8b", LLAMA31),
    "minicpm": ("indischepartij/MiniCPM-3B-OpenHermes-2.5-v2", "MiniCPM-3B-OpenHermes-2.5-v2-GGUF", MINICPM),
    "mistral": ("mistralai/Mistral-7B-Instruct-v0.2", "ollama_mistral-7b-instruct-fp16", MISTRAL),
    "mixtral": ("mistralai/Mixtral-8x7B-Instruct-v0.1", "ollama_mixtral-8x7b", MIXTRAL),
    "olmo": ("allenai/OLMo-7B-Instruct", "allenai_OLMo-7B-Instruct", OLMO),
    "olmo2": ("allenai/OLMo-2-1124-7B-Instruct", "ollama_olmo2-7b", OLMO2),
    "orion": ("OrionStarAI/Orion-14B-Chat", "OrionStarAI_Orion-14B-Chat", ORION),
    "phi3": ("microsoft/Phi-3-mini-4k-instruct", "ollama_phi3-3.8b", PHI3),
    "phi4": ("microsoft/phi-4", "ollama_phi4-14b", PHI4),
    "qwen1.5": ("Qwen/Qwen1.5-0.5B-Chat", "ollama_qwen-0.5b", QWEN15),
    "qwen2": ("Qwen/Qwen2-0.5B-Instruct", "ollama_qwen2-0.5b", chatml("You are a helpful assistant.")),
    "qwen2.5": ("Qwen/Qwen2.5-0.5B-Instruct", "ollama_qwen2.5-0.5b", QWEN25),
    "qwen3": ("Qwen/Qwen3-0.6B", "ollama_qwen3-0.6b", QWEN3),
    "smollm2": ("HuggingFaceTB/SmolLM2-135M-Instruct", "ollama_smollm2-135m", chatml("You are a helpful AI assistant named SmolLM, trained by Hugging Face")),
    "stablelm": ("stabilityai/stable-code-instruct-3b", "ollama_stable-code-3b", chatml("You are a helpful assistant.")),
    "starcoder2": ("bigcode/starcoder2-15b-instruct-v0.1", "bigcode_starcoder2-15b-instruct-v0.1", STARCODER2),
    "vigogne": ("bofenghuang/vigogne-2-70b-chat", "bofenghuang_vigogne-2-70b-chat", llama2("{{ bos_token }}", "", VIGOGNE)),
    "yi": ("01-ai/Yi-6B-Chat", "ollama_yi-6b", YI),
}
