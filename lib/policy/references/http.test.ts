import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type HttpsRequest, type HttpsResponse, http } from "../../needs.ts";
import { recorded } from "../../recorded-answers.ts";
import { mergeWithDefaults, mistakes } from "../../settings.ts";
import { type HttpSettings, httpPlaces, httpReach, httpSettings, unfitHttp } from "./http.ts";

const region = "eu-west-1";

describe("settings of http", () => {
  const pem = "-----BEGIN CERTIFICATE-----\n…";
  const fit: object[] = [
    {},
    { hosts: ["api.example.com", "api.example.com:8443", "*.example.com", "[::1]"] },
    { ca: pem },
    { addresses: ["10.0.0.0/8", "127.0.0.1/32", "fd00::/8", "10.1.2.3"] },
    { credentials: [{ host: "auth.example.com", username: "ann", secret: "s", region }] },
    { credentials: [{ host: "*.example.com:8443", parameter: "/p", region }] },
    { credentials: [{ host: "a", secret: "arn:aws:secretsmanager:eu-west-1:123456789012:secret:s-AbCdEf" }] },
  ];
  for (const given of fit)
    it(`may be ${JSON.stringify(given)}`, () => {
      assert.deepEqual(mistakes(httpSettings, given), []);
      assert.equal(unfitHttp({ ...httpSettings, ...given }), undefined);
    });

  const unfit: [given: object, sentence: RegExp][] = [
    [{ hosts: ["https://a"] }, /^must have hosts such as .* in http\.hosts, not "https:\/\/a"$/],
    [{ hosts: [1] }, /in http\.hosts, not 1$/],
    [{ hosts: [null] }, /in http\.hosts, not null$/],
    [{ hosts: ["*"] }, /in http\.hosts, not "\*"$/],
    [{ ca: "x" }, /^must have a certificate in PEM as http\.ca, or nothing$/],
    [
      { addresses: ["10.0.0.0/33"] },
      /^must have addresses or ranges such as 10\.0\.0\.0\/8 in http\.addresses, not "10/,
    ],
    [{ addresses: [{}] }, /in http\.addresses, not \{\}$/],
    [{ credentials: ["x"] }, /^must have texts alone in http\.credentials\[0\]$/],
    [{ credentials: [{ host: 1 }] }, /^must have texts alone in/],
    [{ credentials: [{ host: "a", password: "x" }] }, /^must have host, .* alone, and no password, in http/],
    [{ credentials: [{ host: "a" }] }, /^must have one of secret and parameter in/],
    [
      { credentials: [{ host: "a", secret: "s", parameter: "p", region }] },
      /^must have one of secret and parameter in/,
    ],
    [{ credentials: [{ host: "a", secret: "s" }] }, /^must have a region such as eu-west-1 in/],
    [{ credentials: [{ secret: "s", region }] }, /^must have a host such as/],
    [
      { credentials: [{ host: "a", username: "a:b", secret: "s", region }] },
      /^must have a username without a colon in/,
    ],
  ];
  for (const [given, sentence] of unfit)
    it(`may not be ${JSON.stringify(given)}`, () => {
      // As it comes from postern.yaml, where lists may hold anything.
      const settings = mergeWithDefaults(httpSettings, given) as HttpSettings;
      assert.match(unfitHttp(settings) ?? "", sentence);
    });

  it("say what is read in AWS", () => {
    const credentials = [
      { host: "a", secret: "s", region },
      { host: "b", username: "u", parameter: "/p", region },
    ];
    assert.deepEqual(httpPlaces({ ...httpSettings, credentials }), [
      { secret: "s", region },
      { parameter: "/p", region },
    ]);
    const need = http(({ http }: { http: HttpSettings }) => httpPlaces(http));
    assert.equal(need.secrets?.({ http: { ...httpSettings, credentials } }).length, 2);
    assert.equal(http().secrets, undefined);
  });
});

describe("what settings keep for a host", () => {
  const credentials = [
    { host: "auth.example.com", username: "ann", secret: "ann", region },
    { host: "auth.example.com", username: "bob", secret: "bob", region },
    { host: "*.example.com", parameter: "/token", region },
  ];
  const settings: HttpSettings = { ...httpSettings, hosts: ["*.example.com"], credentials };
  const url = "https://api.example.com/";
  const authUrl = "https://auth.example.com/";
  const asked = async (auth: object | undefined) => {
    const requests: HttpsRequest[] = [];
    const ask = async (request: HttpsRequest): Promise<HttpsResponse> => {
      requests.push(request);
      return { status: 200, body: '{"token":"t"}' };
    };
    await httpReach(settings, ask).fetch({ url, ...(auth && { auth }) });
    return requests.map(({ bearer, username, headers }) => [bearer, username, headers?.authorization]);
  };
  const place = (secret: string) => ({ secret, region });

  it("goes to where a token is asked for", async () => {
    assert.deepEqual(await asked({ authUrl }), [
      [place("ann"), "ann", undefined],
      [undefined, undefined, "Bearer t"],
    ]);
  });
  it("goes there for the name that the policy has", async () => {
    const [first] = await asked({ authUrl, username: "bob" });
    assert.deepEqual(first?.slice(0, 2), [place("bob"), "bob"]);
  });
  it("stays where the policy has a password", async () => {
    const [first] = await asked({ authUrl, username: "ann", password: "p" });
    assert.deepEqual(first, [undefined, undefined, `Basic ${Buffer.from("ann:p").toString("base64")}`]);
  });
  it("goes to a host for a reference that has auth and no more", async () => {
    assert.deepEqual(await asked({}), [[{ parameter: "/token", region }, undefined, undefined]]);
    assert.deepEqual(await asked(undefined), [[undefined, undefined, undefined]]);
    assert.deepEqual(await asked({ staticToken: "s" }), [[undefined, undefined, "Bearer s"]]);
  });
});

describe("a recorded answer", () => {
  const world = (answer: object) =>
    recorded({ http: [{ url: "http://mock/x", answer: { status: 200, body: '{"n":1}', ...answer } }] });
  const settings: HttpSettings = { ...httpSettings, hosts: ["mock"] };

  it("has names as Go writes them", async () => {
    const { http } = world({ headers: { "content-type": ["a"], "X-A": ["b", "c"] }, trailers: { "x-end": ["d"] } });
    assert.deepEqual(await httpReach(settings, http).fetch({ url: "http://mock/x" }), {
      body: { n: 1 },
      header: { "Content-Type": ["a"], "X-A": ["b", "c"] },
      trailer: { "X-End": ["d"] },
    });
  });
  it("may have no headers", async () => {
    const { header, trailer } = await httpReach(settings, world({}).http).fetch({ url: "http://mock/x" });
    assert.deepEqual([header, trailer], [{}, {}]);
  });
  it("that is missing is named without what is secret", async () => {
    const asked = httpReach(settings, world({}).http).fetch({ url: "http://mock/y", auth: { staticToken: "hush" } });
    await assert.rejects(asked, (error: Error) => {
      assert.match(error.message, /^no answer is recorded to \{.*"url":"http:\/\/mock\/y"\}/);
      assert.doesNotMatch(error.message, /hush|connect/);
      return true;
    });
  });
});
