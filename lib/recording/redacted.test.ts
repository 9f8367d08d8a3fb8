import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { holder, secretIn } from "../../test/planted.ts";
import { redacted } from "./redacted.ts";

const base64 = (text: string) => Buffer.from(text).toString("base64");
const jwt = `${base64('{"alg":"RS256"}').replace(/=+$/, "")}.eyJzdWIiOiJqYW5lIn0.c2lnbmF0dXJl`;
const pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----";
const manifest = { apiVersion: "v1", kind: "Secret", metadata: { name: "db" }, data: { user: base64("jane") } };
const docker = (auths: object) => base64(JSON.stringify({ auths }));

const table: [string, unknown, unknown][] = [
  ["a Secret's data, by its keys", manifest, { ...manifest, data: { user: "cmVkYWN0ZWQ=" } }],
  [
    "what is written as text",
    { kind: "Secret", stringData: { a: "b", empty: "" } },
    { kind: "Secret", stringData: { a: "redacted", empty: "" } },
  ],
  [
    "who logs in to a registry, not the registry",
    { kind: "Secret", data: { ".dockerconfigjson": docker({ "ghcr.io": { username: "jane", password: "p" } }) } },
    { kind: "Secret", data: { ".dockerconfigjson": docker({ "ghcr.io": { auth: base64("redacted:redacted") } }) } },
  ],
  [
    "a Secret in what was applied last",
    { metadata: { annotations: { "kubectl.kubernetes.io/last-applied-configuration": JSON.stringify(manifest) } } },
    {
      metadata: {
        annotations: {
          "kubectl.kubernetes.io/last-applied-configuration": JSON.stringify({
            ...manifest,
            data: { user: "cmVkYWN0ZWQ=" },
          }),
        },
      },
    },
  ],
  [
    "Secrets in a List",
    { kind: "List", items: [manifest] },
    { kind: "List", items: [{ ...manifest, data: { user: "cmVkYWN0ZWQ=" } }] },
  ],
  [
    "Secrets whose list says what they are",
    { kind: "SecretList", items: [{ data: { a: "Yg==" } }] },
    { kind: "SecretList", items: [{ data: { a: "cmVkYWN0ZWQ=" } }] },
  ],
  [
    "a Secret's manifest in a text",
    { data: { "a.yaml": "apiVersion: v1\nkind: Secret\ndata:\n  a: Yg==\n" } },
    { data: { "a.yaml": "redacted" } },
  ],
  ["a Secret's manifest among words", `he wrote ${JSON.stringify(manifest)} there`, "redacted"],
  ["a text of JSON in one", JSON.stringify(JSON.stringify({ token: "a" })), JSON.stringify('{"token":"redacted"}')],
  [
    "a TokenReview's token",
    { kind: "TokenReview", spec: { token: "abc", audiences: ["a"] } },
    { kind: "TokenReview", spec: { token: "redacted", audiences: ["a"] } },
  ],
  [
    "a TokenRequest's",
    { kind: "TokenRequest", status: { token: "abc" } },
    { kind: "TokenRequest", status: { token: "redacted" } },
  ],
  [
    "headers by name",
    { headers: { Authorization: "Basic abc", cookie: ["a", "b"], "X-Api-Key": "k", accept: "text/plain" } },
    {
      headers: {
        Authorization: "redacted",
        cookie: ["redacted", "redacted"],
        "X-Api-Key": "redacted",
        accept: "text/plain",
      },
    },
  ],
  ["what bears a token", "Authorization was Bearer abc.def, it said", "Authorization was Bearer redacted, it said"],
  ["a JWT in any text", `he sent ${jwt} twice`, "he sent redacted twice"],
  ["a JWT right behind a word", `token_${jwt}`, "token_redacted"],
  ["a name with dots stays", "registry.example.com/eyJ/a.b.c:1.2", "registry.example.com/eyJ/a.b.c:1.2"],
  ["an image's tag stays", "example.com/vault-token:1.2", "example.com/vault-token:1.2"],
  ["a private key in PEM", `a ${pem} b`, "a -----BEGIN PRIVATE KEY-----\nredacted\n-----END PRIVATE KEY----- b"],
  [
    "a private key that was cut off",
    "-----BEGIN PRIVATE KEY-----\nMIIEow",
    "-----BEGIN PRIVATE KEY-----\nredacted\n-----END PRIVATE KEY-----",
  ],
  [
    "a private key that is given to a name, line by line",
    { a: `private_key: ${pem}\nb: c` },
    { a: "private_key: redacted\nredacted\n-----END PRIVATE KEY-----\nb: c" },
  ],
  ["a private key in base64", base64(pem), "cmVkYWN0ZWQ="],
  ["a certificate stays", base64("-----BEGIN CERTIFICATE-----\nMIIC\n"), base64("-----BEGIN CERTIFICATE-----\nMIIC\n")],
  [
    "a kubeconfig's key",
    "users:\n- user:\n    client-certificate-data: abc\n    client-key-data: ZGVm\n",
    "users:\n- user:\n    client-certificate-data: abc\n    client-key-data: redacted\n",
  ],
  ["a password over several lines", "password: |\n  one\n  two\nname: a\n", "password: redacted\nname: a\n"],
  ["a password in quotes", 'password: "one two"', "password: redacted"],
  ["an argument", "--token=abc --verbose", "--token=redacted --verbose"],
  ["a form", "grant_type=a&client_secret=b&scope=c", "grant_type=a&client_secret=redacted&scope=c"],
  [
    "a body's members",
    '{"token":"a","secret":"b","clientSecret":"c","name":"d"}',
    '{"token":"redacted","secret":"redacted","clientSecret":"redacted","name":"d"}',
  ],
  ["who an address names", "https://jane:pass@example.com/a", "https://redacted@example.com/a"],
  [
    "a variable",
    {
      env: [
        { name: "DB_PASSWORD", value: "a" },
        { name: "HOME", value: "/" },
      ],
    },
    {
      env: [
        { name: "DB_PASSWORD", value: "redacted" },
        { name: "HOME", value: "/" },
      ],
    },
  ],
  [
    "a header in a list",
    { httpHeaders: [{ name: "Authorization", value: "Basic a" }] },
    { httpHeaders: [{ name: "Authorization", value: "redacted" }] },
  ],
  [
    "what follows an option",
    { args: ["--password", "a", "--token", "--verbose"] },
    { args: ["--password", "redacted", "--token", "--verbose"] },
  ],
  ["what follows an option in a line", "mysql --password a -v", "mysql --password redacted -v"],
  ["a value below a name", { password: { value: "a", from: "b" } }, { password: { value: "redacted", from: "b" } }],
  [
    "a template of Secrets",
    { spec: { template: { type: "Opaque", data: { a: "Yg==" } } } },
    { spec: { template: { type: "Opaque", data: { a: "cmVkYWN0ZWQ=" } } } },
  ],
  [
    "a kubeconfig in base64",
    { binaryData: { config: base64("users:\n- user:\n    token: a\n") } },
    { binaryData: { config: base64("users:\n- user:\n    token: redacted\n") } },
  ],
  ["a key's file", { data: { "tls.key": "a", "tls.crt": "b" } }, { data: { "tls.key": "redacted", "tls.crt": "b" } }],
  ["a key that stands there twice", '{"a":"Bearer b","a":1}', '{"a":1}'],
  ["an element", "<password>a b</password>", "<password>redacted</password>"],
  ["a password in words", "db:\n  password: a b c\n", "db:\n  password: redacted\n"],
  ["a password with quotes in it", `password: "a\\"b"\nname: 'c'`, `password: redacted\nname: 'c'`],
  ["a signature in an address", "https://a.example/b?sig=c&d=e", "https://a.example/b?sig=redacted&d=e"],
  ["an encrypted token", "eyJhbGciOiJkaXIifQ..a.b.c", "redacted"],
  ["a token of a known form", "x ghp_abcdefghijklmnopqrst y", "x redacted y"],
  [
    "a private key of PGP's",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\na",
    "-----BEGIN PRIVATE KEY-----\nredacted\n-----END PRIVATE KEY-----",
  ],
  [
    "a message about Secrets stays",
    'secret: spec.volumes[0].secret="a" is no name',
    'secret: spec.volumes[0].secret="a" is no name',
  ],
  ["what only sounds like a key stays", "- name: monkey\n  value: a\n", "- name: monkey\n  value: a\n"],
  [
    "where a Secret is, stays",
    { secretName: "db", bearer: { secret: "place", region: "eu-west-1" }, imagePullSecrets: [{ name: "a" }] },
    { secretName: "db", bearer: { secret: "place", region: "eu-west-1" }, imagePullSecrets: [{ name: "a" }] },
  ],
  [
    "what is no text, stays",
    { automountServiceAccountToken: false, token: null },
    { automountServiceAccountToken: false, token: null },
  ],
  [
    "who logs in to a registry, in a ConfigMap",
    { kind: "ConfigMap", data: { a: JSON.stringify({ auths: { "ghcr.io": { auth: base64("jane:pass") } } }) } },
    {
      kind: "ConfigMap",
      data: { a: JSON.stringify({ auths: { "ghcr.io": { auth: base64("redacted:redacted") } } }) },
    },
  ],
  ["the same in YAML", `    auth: ${base64("jane:pass")}\n`, `    auth: ${base64("redacted:redacted")}\n`],
  ["a login", `it sent Basic ${base64("jane:pass")}`, `it sent Basic ${base64("redacted:redacted")}`],
  ["what is no login stays", "Basic authentication, auth: enabled", "Basic authentication, auth: enabled"],
  [
    "what a variable is called, where it is no variable yet",
    { data: { JWT_SECRET: "a", STRIPE_KEY: "b", LOG_LEVEL: "c" } },
    { data: { JWT_SECRET: "redacted", STRIPE_KEY: "redacted", LOG_LEVEL: "c" } },
  ],
  [
    "a file of variables",
    "SECRET_KEY_BASE=a\nexport DB_AUTH='b c'\nLOG=d",
    "SECRET_KEY_BASE=redacted\nexport DB_AUTH=redacted\nLOG=d",
  ],
  [
    "a variable in YAML",
    'env:\n- name: DB_PASSWORD\n  value: a b\n- name: "API_KEY"\n  value: "c"\n- name: HOME\n  value: /\n',
    'env:\n- name: DB_PASSWORD\n  value: redacted\n- name: "API_KEY"\n  value: redacted\n- name: HOME\n  value: /\n',
  ],
  ["a variable in JSON among words", 'a {"name":"API_TOKEN","value":"b"}', 'a {"name":"API_TOKEN","value":redacted}'],
  ["a setting in XML", '<add key="Password" value="a b"/>', '<add key="Password" value=redacted/>'],
  [
    "an argument in YAML",
    "args:\n- --password\n- a\n- --token\n- --verbose\n",
    "args:\n- --password\n- redacted\n- --token\n- --verbose\n",
  ],
  ["an argument in a list in a text", `["--password", "a"] b`, `["--password", redacted] b`],
  [
    "a secret in properties and TOML",
    `app.secret=a\nsecret = 'b'\njwt-secret: c`,
    "app.secret=redacted\nsecret = redacted\njwt-secret: redacted",
  ],
  ["a password with an anchor, or a tag", "password: &p a\ntoken: !!str b", "password: redacted\ntoken: redacted"],
  ["a password in Ruby and Go", `password => 'a', token := "b"`, "password => redacted, token := redacted"],
  ["who an address without a scheme names", "jane:pass@tcp(db:3306)/a", "jane:redacted@tcp(db:3306)/a"],
  ["where Slack is told", "https://hooks.slack.com/services/T0/B0/abc", "https://hooks.slack.com/services/redacted"],
  [
    "what an ExternalSecret makes Secrets of",
    { kind: "ExternalSecret", spec: { target: { template: { data: { b: "c" } } } } },
    {
      kind: "ExternalSecret",
      spec: { target: { template: { data: { b: "cmVkYWN0ZWQ=" } } } },
    },
  ],
  ["JSON in a text as it was written, where nothing must go", '{ "a": 1.0 }', '{ "a": 1.0 }'],
];

describe("what nobody may read", () => {
  for (const [what, given, expected] of table) it(`goes: ${what}`, () => assert.deepEqual(redacted(given), expected));

  it("is found in a Secret whose kind only the request says", () => {
    assert.deepEqual(redacted({ mutate: { data: { a: "Yg==" } } }, true), { mutate: { data: { a: "cmVkYWN0ZWQ=" } } });
  });

  it("leaves keys of every name alone, and prototypes", () => {
    const given = JSON.parse(
      '{"__proto__":{"password":"a"},"constructor":{"token":"b"},"kind":"Secret","data":{"__proto__":"c"}}',
    );
    const made = redacted(given);
    assert.equal(
      JSON.stringify(made),
      '{"__proto__":{"password":"redacted"},"constructor":{"token":"redacted"},"kind":"Secret","data":{"__proto__":"cmVkYWN0ZWQ="}}',
    );
    assert.equal(Object.getPrototypeOf(made), Object.prototype);
  });

  it("is not looked for where there is too much, or too deep", () => {
    const deep = `${'{"a":'.repeat(5000)}1${"}".repeat(5000)}`;
    const inTexts = Array.from({ length: 12 }).reduce<unknown>((inner) => JSON.stringify({ a: inner }), "x");
    assert.equal(redacted(deep), undefined);
    assert.equal(redacted(JSON.parse(deep)), undefined);
    assert.equal(redacted(inTexts), inTexts);
    assert.equal(redacted(Array.from({ length: 30_000 }).fill("x".repeat(100))), undefined);
  });

  it("is found in no more steps than a text is long", () => {
    for (const part of [
      "eyJ",
      "eyJ.",
      "://",
      "password",
      "token=",
      "Bearer ",
      "-----BEGIN ",
      "LS0tLS1CRUdJTi",
      "kind: ",
      "a",
      " ",
      "\n ",
      "password: |\n ",
      "--",
      "--token ",
      "token>",
      'password="\\\\',
      "password: ",
      "\n- password ",
      "?sig=",
      "ghp_",
      "a@",
      ":a@",
      "A_",
      "A_ ",
      "SECRET_",
      "KEY= &a ",
      "auth=",
      "Basic a",
      "a.",
      "\nsecret",
      "name: ",
      "name: token\n",
      "name=token,\nvalue=",
      "--token,",
      "--token\n- ",
      "hooks.slack.com/services/",
    ])
      redacted(part.repeat(Math.floor(500_000 / part.length)));
  });

  it("is the same once it is gone", () =>
    fc.assert(
      fc.property(holder(fc.string()), (value) => {
        const once = redacted(value);
        assert.deepEqual(redacted(once), once);
      }),
    ));

  it("survives nowhere", () =>
    fc.assert(
      fc.property(
        fc.uuid().chain((planted) => fc.tuple(fc.constant(planted), holder(secretIn(planted)))),
        ([planted, value]) => {
          const [bare, packed] = [planted, base64(planted)];
          const text = JSON.stringify(redacted(value));
          assert.ok(!text.includes(bare) && !text.includes(packed), text);
        },
      ),
      { numRuns: 500 },
    ));
});
