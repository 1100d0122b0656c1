"""Secrets of many kinds, each in the text in which people meet it; and what must not be masked.

The secrets are made here out of their form and chance, so that no scanner finds one in this file.
"""

from __future__ import annotations

import base64
import random
import string
from dataclasses import dataclass

CHANCE = random.Random(8)
ALNUM = string.ascii_letters + string.digits
BASE64 = ALNUM + "+/"
HEX = "0123456789abcdef"


@dataclass(frozen=True)
class Planted:
    """`secret` must be nowhere in what leaves the machine; `text` is where it stood."""

    kind: str
    secret: str
    text: str


def made(size: int, letters: str = ALNUM) -> str:
    """At random, with a letter first and a digit in it."""
    return "x7" + "".join(CHANCE.choice(letters) for _ in range(size - 2))


FOUND: list[Planted] = []


def plant(kind: str, secret: str, text: str) -> None:
    """`{}` in the text is the secret."""
    FOUND.append(Planted(kind, secret, text.replace("{}", secret)))


def jwt() -> str:
    return "ey" + f"J{made(20)}.{made(40)}.{made(43)}"


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# Tokens by their form
plant("hugging face", "hf_" + made(34), "huggingface-cli login --add {}")
plant("hugging face", "hf_" + made(34), "OSError: 401 for token={} at https://huggingface.co/api")
plant("openai", "sk-" + made(48), "client = OpenAI(api_key='{}')")
plant("openai", "sk-proj-" + made(60, ALNUM + "-_"), "Incorrect API key provided: {}.")
plant("anthropic", "sk-ant-api03-" + made(80, ALNUM + "-_"), "export KEY={}")
plant("aws id", "AKIA" + made(16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ").upper(), "credentials {} found")
plant("aws id", "ASIA" + made(16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ").upper(), "aws_access_key_id = {}")
plant("aws secret", made(40, BASE64), "aws_secret_access_key = {}")
plant("aws secret", made(40, BASE64), '"AWS_SECRET_ACCESS_KEY": "{}"')
plant("aws session", made(120, BASE64), "AWS_SESSION_TOKEN={}")
plant("github", "ghp_" + made(36), "remote: https://{}@github.com/org/private.git")
plant("github", "github_pat_" + made(60, ALNUM + "_"), "GH={}")
plant("github", "ghs_" + made(36), "using installation token {}")
plant("gitlab", "glpat-" + made(20), "PRIVATE-TOKEN: {}")
plant("gcp", "AIza" + made(35, ALNUM + "-_"), "https://maps.example.com/v1?key={}")
plant("gcp", "ya29." + made(60, ALNUM + "-_"), "access token {} expires in 3599")
plant("gcp", "GOCSPX-" + made(28, ALNUM + "-_"), '"client_secret":"{}"')
plant("azure", made(3) + "8Q~" + made(33), "client secret {} is wrong")
plant(
    "azure",
    made(86, BASE64) + "==",
    "AccountName=models;AccountKey={};EndpointSuffix=core.windows.net",
)
plant(
    "azure",
    made(43, ALNUM) + "%3D",
    "https://models.blob.core.windows.net/w?sv=2024-11-04&sig={}&se=2026",
)
plant("slack", "xoxb-" + made(40, string.digits + "-"), "notify with {}")
plant(
    "slack",
    "T" + made(9).upper() + "/B" + made(9).upper() + "/" + made(24),
    "https://hooks.slack.com/services/{}",
)
plant("nvidia", "nvapi-" + made(60, ALNUM + "-_"), "docker login nvcr.io -u '$oauthtoken' -p {}")
plant("npm", "npm_" + made(36), "//registry.npmjs.org/:_authToken={}")
plant("docker", "dckr_pat_" + made(27, ALNUM + "-_"), "echo {} | docker login --password-stdin")
plant("docker", base64_of("someone:" + made(16)), '{"auths":{"nvcr.io":{"auth":"{}"}}}')
plant("groq", "gsk_" + made(52), "GROQ={}")
plant("databricks", "dapi" + "".join(CHANCE.choice(HEX) for _ in range(32)), "using {}")
plant("stripe", "sk_live_" + made(24), "billing {}")
plant("vault", "hvs." + made(90, ALNUM + "-_"), "vault token {} revoked")
plant("jwt", jwt(), "session {} accepted")
plant("jwt", jwt(), 'curl -H "Authorization: Bearer {}" http://localhost:8000/v1/models')

# Keys
BODY = "\n".join(made(64, BASE64) for _ in range(3))
plant("pem", BODY, "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----")
ONE_LINE = made(100, BASE64)
plant(
    "pem",
    ONE_LINE,
    '"private_key": "-----BEGIN PRIVATE KEY-----\\n{}\\n-----END PRIVATE KEY-----\\n"',
)
plant("pem", made(64, BASE64), "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n(the log ends here)")

# Headers, URLs
plant("bearer", made(32), "authorization: bearer {}")
plant("bearer", made(24), "{'Authorization': 'Bearer {}', 'Accept': '*/*'}")
plant("basic", base64_of("alice:" + made(12)), "Authorization: Basic {}")
plant("basic", base64_of("svc:" + made(11)), "proxy says: Basic {}")
plant("header", made(20), "X-API-Key: {}")
plant("header", made(30), "Set-Cookie: session={}; Path=/")
plant(
    "url", "deploy:" + made(14), "pip install --index-url https://{}@pypi.corp.example/simple vllm"
)
plant("url", "root:" + made(10), "redis://{}@cache:6379/0")
plant("url", made(30), "git clone https://{}@git.example.org/models.git")
plant("url", made(64, HEX), "https://cdn-lfs.hf.co/repos/a/b?X-Amz-Signature={}&x-id=GetObject")
plant("curl", made(12), "curl -u admin:{} https://registry.example.org/v2/")
plant("netrc", made(12), "machine huggingface.co login alice password {}")

# Options and settings by their names
plant("option", "correct-horse-1", "vllm serve m --api-key {} --port 8000")
plant("option", "battery-staple-2", "ARGS: ['serve', 'm', '--api-key', '{}', '--port', '8000']")
plant("option", "staple-battery-3", "      - --api-key\n      - {}\n      - --port")
plant("option", "hunter-two-4", '{"command": ["vllm", "serve", "--hf-token={}"]}')
plant(
    "engine log",
    "secret-of-the-log-5",
    "non-default args: {'model': 'm', 'api_key': ['{}'], 'port': 8000}",
)
plant(
    "engine log",
    "another-of-the-log-6",
    "args: Namespace(host=None, api_key='{}', uvicorn_log_level='info')",
)
plant("environment", "purple-monkey-7", "export VLLM_API_KEY={}")
plant("environment", "dishwasher-8", "docker run -e HF_TOKEN={} -p 8000:8000 image")
plant("environment", made(40, HEX), "WANDB_API_KEY={}")
plant("environment", "S3cr3t!9", "DB_PASSWORD='{}'")
plant("yaml", "yaml-secret-10", "api_key: {}")
plant("yaml", "yaml password eleven", 'password: "{}"')
plant("yaml", "yaml-secret-12", "        env:\n        - name: HF_TOKEN\n          value: {}")
plant("yaml", "yaml-secret-13", "client:\n  apiKey: {}\n  timeout: 30")
plant("json", "json-secret-14", '{"name": "HF_TOKEN", "value": "{}"}')
plant("json", "json-secret-15", '{"refresh_token":"{}","expires_in":3600}')
plant("toml", "toml-secret-16", 'access_token = "{}"')
plant("ini", "ini-secret-seventeen", "secret = {}")
SECRET = base64_of("hf_" + made(20))
plant(
    "kubernetes",
    SECRET,
    "apiVersion: v1\nkind: Secret\nmetadata:\n  name: hf\ndata:\n  hub: {}\ntype: Opaque",
)
plant("kubernetes", "plain-in-a-secret", "kind: Secret\nstringData:\n  hub: {}\n---\nkind: Pod\n")

# Names and addresses
plant("user", "margarete", "FileNotFoundError: /home/{}/models/config.json")
plant("user", "heinrich", "/Users/{}/Downloads/model.safetensors: truncated")
plant("user", "mephisto", r"C:\Users\{}\wsl\model")
plant("host", "ip-172-31-7-9.eu-west-1.compute.internal", "rank 3 on {} is gone")
plant("host", "gretchen-0.llm.prod.svc.cluster.local", "GET http://{}:8000/health")
plant("host", "walpurgis17", "Nov 30 20:31:25 {} vllm[812]: engine died")
plant("mac", "a0:36:9f:1c:2b:7e", "link/ether {} brd ff:ff:ff:ff:ff:ff")
plant("mac", "A0-36-9F-1C-2B-7F", "Physical Address: {}")
plant("ip", "203.0.113.77", 'INFO:     {}:51234 - "POST /v1/chat/completions HTTP/1.1" 200 OK')
plant("ip", "198.51.100.14", "connect to {} failed: Connection refused")
plant("ip", "8.34.214.9", "http://{}/v1/models")
plant("ip", "10.9.8.7", "MASTER_ADDR={}")
plant("ip", "2a02:8109:9a00:1f::7d2", "listening on [{}]:8000")
plant("serial", "1654922012345", "    Serial Number                         : {}")
plant("serial", "1654922054321", "<serial>{}</serial>")
plant("email", "faust@auerbach.example", "Author: {}")

# A second reader's: objects, charts, shells, services
OBJECT = base64_of("hf_" + made(22))
plant("kubernetes", OBJECT, '{"apiVersion":"v1","data":{"hub":"{}"},"kind":"Secret"}')
OBJECT = base64_of("hf_" + made(22))
plant("kubernetes", OBJECT, "kind: Secret\ndata: {hub: {}}\n")
OBJECT = base64_of("hf_" + made(22))
plant("kubernetes", OBJECT, "kind: List\nitems:\n- data:\n    hub: {}\n  kind: Secret\n")
OBJECT = base64_of("hf_" + made(22))
plant(
    "kubernetes",
    OBJECT,
    "  annotations:\n    kubectl.kubernetes.io/last-applied-configuration: |\n"
    '      {"apiVersion":"v1","data":{"hub":"{}"},"kind":"Secret"}\n',
)
plant(
    "kubernetes",
    "line-within-a-value",
    "kind: Secret\nstringData:\n  app.conf: |\n    user x\n    word {}\n",
)
plant("kubernetes", "literal-19-ab", "kubectl create secret generic hf --from-literal=hub={}")
plant("helm", "chart-token-20", "vllm:\n  hfToken: {}\n")
plant("helm", "chart-token-21", "helm install x --set servingEngineSpec.vllmApiKey={} --set a=b")
plant("systemd", "unit-secret-22", "SetCredential=hf:{}")
plant("systemd", "unit-secret-23", "Environment='A=b' 'VLLM_API_KEY={}'")
plant("shell", "shell-secret-24", "setenv HF_TOKEN {}")
plant("shell", "shell-secret-25", "set -gx VLLM_API_KEY {}")
plant("shell", "shell secret 26", 'export PGPASSWORD="{}"')
plant("shell", "shell-secret-27", ": 1700000000:0;OPENAI_KEY={} python x.py")
plant("shell", "shell-secret-28", "HF_AUTH={}")
plant("dockerfile", "layer-secret-29", "ENV HF_TOKEN {}")
plant("command", "login-secret-30", "docker login -u bob -p {} registry.example.org")
plant("command", "login secret 31", "sshpass -p '{}' ssh node1")
plant("command", "login-secret-32", "mysql -u root -p{} db")
plant("command", "login-secret-33", "redis-cli -h cache -a {} ping")
plant("command", made(40, HEX), "wandb login --relogin {}")
plant("cookie", "cookie-of-34", "curl -b 'session={}' http://localhost:8000")
plant("url", "between/slash-35", "redis://:{}@cache:6379/0")
plant("url", "at@sign-in-36", "postgres://user:{}@db:5432/x")
plant("url", "query-secret-37", "GET /x?subscription-key={}&a=b HTTP/1.1")
plant("url", "query-secret-38", "GET /x?next=y%26token%3D{} HTTP/1.1")
plant("netrc", "netrc-secret-39", "machine api.wandb.ai password {}")
plant("header", "header-of-40", "headers=[(b'host', b'x'), (b'x-api-key', b'{}')]")
plant("python", "python-41-secret", "os.environ['HF_TOKEN'] = '{}'")
plant("python", "python-42-secret", "os.environ.setdefault('HF_TOKEN', '{}')")
plant("python", "python-43-secret", "Namespace(api_key=('{}',), port=8000)")
plant("json", "json-secret-44", '"{\\\\\\"api_key\\\\\\": \\\\\\"{}\\\\\\"}"')
plant("json", "hf_" + made(34), '{"log":"first\\n{}\\n"}')
plant("sentence", "sentence-45ab", "ValueError: invalid token passed: {}")
plant("sentence", "sentence-46ab", "401: Incorrect API key provided: {}. You can find yours")
plant("sentence", "sentence-47ab", "Invalid user token '{}'")
plant("sentence", "sentence-48ab", "generated password is {}")
plant("yaml", "below-its-name-49", "api_key: >-\n  {}\n")
plant("yaml", "below-its-name-50", "api-key:\n  - {}\n")
plant("yaml", "behind-anchor-51", "token: &tok {}\n")
plant("yaml", "behind-tag-52x", "token: !!str {}\n")
plant("toml", "toml-secret-53", 'api_key = """{}"""')
plant("xai", "xai-" + made(80), "with {}")
plant("perplexity", "pplx-" + made(48), "with {}")
plant("tavily", "tvly-" + made(32), "with {}")
plant("langsmith", "lsv2_pt_" + made(32, HEX) + "_" + made(10, HEX), "with {}")
plant("gitlab", "gldt-" + made(20), "with {}")
plant("digitalocean", "dop_v1_" + made(64, HEX), "with {}")
plant("tailscale", "tskey-auth-" + made(30), "with {}")
plant("hugging face", "api_org_" + made(34), "with {}")
plant("hugging face", "hf_jwt_" + jwt(), "with {}")
plant("telegram", "123456789:AA" + made(33), "https://api.telegram.org/bot{}/sendMessage")
plant("crypt", "$6$" + made(8) + "$" + made(80), "root:{}:19700:0:99999:7:::")
plant("crypt", "$2y$10$" + made(53), "passwd: {}")
plant("discord", "1234567890/" + made(40), "https://discord.com/api/webhooks/{}")
plant("user", "valentin", "/mnt/nfs/users/{}/models")
plant("user", "siebel", "cp ~{}/models/x .")
plant("user", "brander", "USER={} HOME=/x")
plant("user", "frosch", "{}@gpu-box-7:~$ vllm serve m")
plant("host", "altmayer-17", "{}:1234:1300 [0] NCCL INFO Bootstrap : Using eth0")
plant("host", "10-77-3-7.default.pod.cluster.local", "from {} port 8000")
plant("ip", "10.77.3.4", "NCCL INFO NET/Socket : Using [0]eth0:{}<0>")
plant("ip", "10.77.3.5", '"podIP": "{}"')
plant("ip", "10.77.3.6", "init_method ('{}', 29500)")
plant("ip", "10.77.3.9", "default via {} dev eth0")
plant("ip", "10.77.3.8", "127.0.0.1 localhost\n{} node3 node3.example\n")
plant("ip", "192.168.77.8", "node at {} is gone")
plant("ip", "fe80::42:acff:fe11:2", "Using eth0:{}%eth0<0>")
plant("mac", "0xa0369f0300c2b7e0", "Node GUID: {}")
plant("serial", "CZ123456AB", "product_serial: {}")
plant("email", "wagner@auerbach.example", '{"log":"x\\n{} failed"}')

KEPT = (
    "nvidia-cublas 13.1.0.3, nvidia-cudnn-cu13==9.19.0.56; cusolver>=12.0.3.29 cufft-11.3.3.83",
    "TensorRT version 10.13.3.9, NCCL version 2.28.9+cuda13.0, driver 580.159.04",
    "Linux 5.15.167.4-microsoft-standard-WSL2 and 6.8.0-1021-aws",
    "GPU-5d3f5a9e-1111-2222-3333-444455556666 MIG-0f0e0d0c-1111-2222-3333-444455556666",
    "commit 1b6453892473a467d07372d45eb05abc2031647a of models--org--name/snapshots",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 model-00001-of-00004",
    "00000000:65:02.0 0000:00:06.0 0x10de 0x2335, 20:31:25.123456 2026-11-30T20:31:25Z",
    "bos_token: <|begin_of_text|>, eos_token = </s>, 'pad_token': '<pad>', eos_token: endoftext",
    "max_tokens: 4096, --max-num-batched-tokens 8192, VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE=163840",
    "next_token_ids = flashinfer.sampling.top_k(logits), token = tokenizer.decode(ids)",
    "VLLM_API_KEY: str | None = None\nS3_SECRET_ACCESS_KEY: str | None = None",
    '"VLLM_API_KEY": lambda: os.environ.get("VLLM_API_KEY", None),',
    "HF_TOKEN_PATH=/data/token HF_TOKEN=$HF_TOKEN HF_TOKEN=${TOKEN:-} api_key: {{ .Values.key }}",
    "valueFrom: {secretKeyRef: {name: hf, key: token}}",
    "JSONDecodeError: unexpected token: punctuation; password: required",
    "/usr/local/lib/python3.12/dist-packages/vllm/entrypoints/openai/api_server.py:1042",
    "/root/.cache/huggingface/hub /models/llama-3.1-8b/model.safetensors /var/run/secrets/token",
    "http://localhost:8000/v1 127.0.0.1:8000 0.0.0.0:8000 [::1]:8000 tcp://127.0.0.1:29500",
    "VLLM::EngineCore c10::Error at::native::add std::vector torch.ops.vllm::all_reduce",
    "vllm/vllm-openai:v0.26.0 nvcr.io/nvidia/tritonserver:25.10-trtllm-python-py3",
    "git@github.com:vllm-project/vllm.git torch@2.11.0 pkg:pypi/torch@2.11.0",
    "serialize 12 tensors; serial: yes; keyword=value; tokenizer: /models/llama; key: model.layers.0",
    '{"source": "x\\n@torch.compile"} "def f():\\n@torch.compile(dynamic=True)"',
    "tokenizer: sk-tokenizer-large-v2-instruct-model, hf_model_llama_3_1_8b_instruct",
    "x-api-key is missing; api-key: required; ['authorization', 'content-type', 'x-api-key']",
    "PWD=/workspace OLDPWD=/root pwd: /models; CUDA_CACHE_KEY=12.9-sm90 TRITON_CACHE_KEY=ab12cd34",
    "10.13.3.9 is the TensorRT version\n12.9.1.4 cublas\n",
    "USER=root LOGNAME=root USER 1000, role: user, user: vllm; ~/models ~10/20 /v1/users/me",
    "kind: SecretProviderClass\ndata:\n  a: b\n---\nkind: ConfigMap\ndata:\n  a: secret words\n",
    "added_tokens[token] = decoder[index]; eosToken: abcdefgh; Serial Number: [N/A]",
    "postgres://db:5432/x http://localhost:8000/v1/a@v2 git+https://github.com:443/a/b.git@v0.26.0",
    "password protected: no; API key required for this server; token latency p99: 35ms",
)
"""Versions, hashes, identifiers, paths and words of engines that must stay as they are."""
