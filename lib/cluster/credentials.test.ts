import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { SSM } from "@aws-sdk/client-ssm";
import { toMap } from "../json.ts";
import { isRegion } from "../service-settings.ts";
import { createCredentialSource, createEksToken, createTokenSource, getAwsDomain } from "./credentials.ts";
import type { sendRequest } from "./https-request.ts";

const identity = { accessKeyId: "AKIDEXAMPLE", secretAccessKey: "secret", sessionToken: "session" };
const minute = 60_000;
const getDeadline = () => Date.now() + 1000;

/** Returns credential sources to which `answer` answers instead of AWS, and the list of the requests that they send. */
const answerAws = (answer: (count: number) => { status?: number; body: unknown }) => {
  const requests: { url: string; headers: Record<string, unknown>; body: unknown }[] = [];
  const ask: typeof sendRequest = async (url, { headers }, body = "") => {
    requests.push({ url, headers: toMap(headers), body: JSON.parse(String(body)) });
    const { status = 200, body: content } = answer(requests.length);
    return { status, body: typeof content === "string" ? content : JSON.stringify(content), retryAfter: undefined };
  };
  return { requests, sources: { identity: () => identity, ask } };
};

const mockClock = (test: TestContext) => {
  test.mock.timers.enable({ apis: ["Date"], now: new Date("2026-01-02T03:04:05Z") });
  return (minutes: number) => test.mock.timers.setTime(Date.now() + minutes * minute);
};

describe("a token source", () => {
  it("a token source returns a configured token at each call", async () => {
    const { read, refused } = createCredentialSource({ token: "t" });
    const found = await read(getDeadline());
    assert.deepEqual(found, { token: "t" });
    await refused(found);
    assert.deepEqual(await read(getDeadline()), { token: "t" });
  });

  it("a token source returns no token if the credentials are a certificate", async () => {
    const { read } = createCredentialSource({ cert: "c", key: "k" });
    assert.deepEqual(await read(getDeadline()), { cert: "c", key: "k" });
  });

  it("a token source presigns a request to STS, and a new request before the first one expires", async (test) => {
    const passMinutes = mockClock(test);
    const { requests, sources } = answerAws(() => ({ body: {} }));
    const credentials = { eks: "prod", region: "eu-west-1" };
    const { read: token } = createTokenSource(credentials, sources);
    const first = await token(getDeadline());
    assert.equal(first, createEksToken(credentials, identity, new Date()));
    const url = new URL(Buffer.from(String(first).replace("k8s-aws-v1.", ""), "base64url").toString());
    assert.equal(url.host, "sts.eu-west-1.amazonaws.com");
    assert.equal(url.searchParams.get("X-Amz-SignedHeaders"), "host;x-k8s-aws-id");
    passMinutes(9);
    assert.equal(await token(getDeadline()), first);
    passMinutes(2);
    assert.notEqual(await token(getDeadline()), first);
    assert.deepEqual(requests, [], "a presigned URL needs no request");
  });

  const storedTokens: [
    name: string,
    credentials: Parameters<typeof createTokenSource>[0],
    expectedBody: object,
    answer: (token: string) => unknown,
    host: string,
    expectedHeader: object,
  ][] = [
    [
      "the text of a secret",
      { secret: "postern", region: "eu-west-1" },
      { SecretId: "postern" },
      (token) => ({ SecretString: `${token}\n` }),
      "secretsmanager.eu-west-1.amazonaws.com",
      { "x-amz-target": "secretsmanager.GetSecretValue" },
    ],
    [
      "the value of a parameter",
      { parameter: "/postern", region: "cn-north-1" },
      { Name: "/postern", WithDecryption: true },
      (token) => ({ Parameter: { Value: token } }),
      "ssm.cn-north-1.amazonaws.com.cn",
      { "x-amz-target": "AmazonSSM.GetParameter" },
    ],
  ];
  for (const [name, credentials, expectedBody, answer, host, expectedHeader] of storedTokens) {
    it(`reads ${name}, and caches it for some time`, async (test) => {
      const passMinutes = mockClock(test);
      const { requests, sources } = answerAws((count) => ({ body: answer(`t${count}`) }));
      const { read: token } = createTokenSource(credentials, sources);
      assert.deepEqual(await Promise.all([token(getDeadline()), token(getDeadline())]), ["t1", "t1"]);
      const [{ url, headers, body } = { url: "", headers: {}, body: {} }] = requests;
      assert.deepEqual([url, body], [`https://${host}/`, expectedBody]);
      assert.deepEqual({ ...headers, ...expectedHeader }, headers);
      assert.match(String(headers.authorization), /^AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE\//);
      passMinutes(4);
      assert.equal(await token(getDeadline()), "t1");
      passMinutes(2);
      assert.equal(await token(getDeadline()), "t2");
    });

    it(`reads ${name} again after a server refused it`, async () => {
      const { requests, sources } = answerAws((count) => ({ body: answer(`t${count}`) }));
      const { read: token, refused } = createTokenSource(credentials, sources);
      await token(getDeadline());
      await refused("t1");
      assert.equal(await token(getDeadline()), "t2");
      await refused("t1");
      assert.equal(await token(getDeadline()), "t2");
      assert.equal(requests.length, 2);
    });
  }

  const wrongAnswers: [name: string, answer: { status?: number; body: unknown }, sentence: RegExp][] = [
    [
      "is refused",
      { status: 400, body: { __type: "com.amazon#AccessDeniedException", message: "details" } },
      /^Error: the secret postern could not be read: secretsmanager answers 400, AccessDeniedException$/,
    ],
    ["is empty", { body: { SecretString: " " } }, /^Error: the secret postern holds neither a token nor a key in PEM$/],
    [
      "is JSON",
      { body: { SecretString: '{\n"token": "t"\n}' } },
      /^Error: the secret postern holds neither a token nor a key in PEM$/,
    ],
    [
      "is binary",
      { body: { SecretBinary: "AA==" } },
      /^Error: the secret postern holds neither a token nor a key in PEM$/,
    ],
  ];
  for (const [name, answer, sentence] of wrongAnswers)
    it(`fails for a secret that ${name}, and reads it again at the next call`, async () => {
      const { sources } = answerAws((count) => (count === 1 ? answer : { body: { SecretString: "t" } }));
      const { read: token } = createTokenSource({ secret: "postern", region: "eu-west-1" }, sources);
      await assert.rejects(token(getDeadline()), sentence);
      assert.equal(await token(getDeadline()), "t");
    });

  it("a token source fails without an AWS identity", async () => {
    const { AWS_ACCESS_KEY_ID: before } = process.env;
    delete process.env.AWS_ACCESS_KEY_ID;
    try {
      await assert.rejects(
        createTokenSource({ eks: "a", region: "b" }).read(getDeadline()),
        /^Error: there is no AWS identity: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set$/,
      );
    } finally {
      if (before !== undefined) process.env.AWS_ACCESS_KEY_ID = before;
    }
  });
});

describe("the domain of AWS's services", () => {
  const regions = [
    "us-east-1",
    "eu-central-1",
    "il-central-1",
    "mx-central-1",
    "ap-southeast-7",
    "sa-west-1",
    "us-gov-west-1",
    "us-gov-east-1",
    "cn-north-1",
    "cn-northwest-1",
    "eusc-de-east-1",
    "us-iso-east-1",
    "us-iso-west-1",
    "us-isob-east-1",
    "us-isob-west-1",
    "eu-isoe-west-1",
    "us-isof-south-1",
    "us-isof-east-1",
  ];
  for (const region of regions)
    it(`is that of AWS's SDK in ${region}`, () => {
      const { url } = new SSM({ region }).config.endpointProvider({ Region: region });
      assert.equal(`ssm.${region}.${getAwsDomain(region)}`, url.host);
      assert.ok(isRegion(region));
    });
});
