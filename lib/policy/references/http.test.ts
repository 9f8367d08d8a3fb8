import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { parse } from "yaml";
import { type HttpsRequest, type HttpsResponse, http } from "../../needs.ts";
import { createRecordedCapabilities } from "../../recording/recorded-answers.ts";
import { findSettingsMistakes, mergeWithDefaults } from "../../settings.ts";
import {
  createPolicyHttpCapabilities,
  defaultHttpSettings,
  findPolicyHttpSettingsFault,
  listSecretPlaces,
  type PolicyHttpSettings,
} from "./http.ts";

const region = "eu-west-1";
const {
  validSettings,
  invalidSettings,
}: { validSettings: object[]; invalidSettings: { settings: object; message: string }[] } = parse(
  readFileSync(new URL("requests.yaml", import.meta.url), "utf8"),
);

describe("the setting http", () => {
  for (const setting of validSettings)
    it(`can be ${JSON.stringify(setting)}`, () => {
      assert.deepEqual(findSettingsMistakes({ settings: defaultHttpSettings }, setting), []);
      assert.equal(findPolicyHttpSettingsFault({ ...defaultHttpSettings, ...setting }), undefined);
    });

  for (const { settings: invalid, message } of invalidSettings)
    it(`can't be ${JSON.stringify(invalid)}`, () => {
      // Lists in postern.yaml may contain any JSON.
      const settings = mergeWithDefaults(defaultHttpSettings, invalid) as PolicyHttpSettings;
      assert.match(findPolicyHttpSettingsFault(settings) ?? "", new RegExp(message));
    });

  it("the setting http lists the secrets that are read in AWS", () => {
    const credentials = [
      { host: "a", secret: "s", region },
      { host: "b", username: "u", parameter: "/p", region },
    ];
    assert.deepEqual(listSecretPlaces({ ...defaultHttpSettings, credentials }), [
      { secret: "s", region },
      { parameter: "/p", region },
    ]);
    const need = http(({ http }: { http: PolicyHttpSettings }) => listSecretPlaces(http));
    assert.equal(need.secrets?.({ http: { ...defaultHttpSettings, credentials } }).length, 2);
    assert.equal(http().secrets, undefined);
  });
});

describe("a credential for a host", () => {
  const credentials = [
    { host: "auth.example.com", username: "ann", secret: "ann", region },
    { host: "auth.example.com", username: "bob", secret: "bob", region },
    { host: "*.example.com", parameter: "/token", region },
  ];
  const settings: PolicyHttpSettings = { ...defaultHttpSettings, hosts: ["*.example.com"], credentials };
  const url = "https://api.example.com/";
  const authUrl = "https://auth.example.com/";
  const sendWithAuth = async (auth: object | undefined) => {
    const requests: HttpsRequest[] = [];
    const sendRequest = async (request: HttpsRequest): Promise<HttpsResponse> => {
      requests.push(request);
      return { status: 200, body: '{"token":"t"}' };
    };
    await createPolicyHttpCapabilities(settings, sendRequest).fetchReference({ url, ...(auth && { auth }) });
    // The secret at `bearer` is sent as a token or, with a username, as its password.
    return requests.map(({ bearer: credential, username, headers }) => [credential, username, headers?.authorization]);
  };
  const place = (secret: string) => ({ secret, region });

  it("a credential for a host is sent to the address where a token is requested", async () => {
    assert.deepEqual(await sendWithAuth({ authUrl }), [
      [place("ann"), "ann", undefined],
      [undefined, undefined, "Bearer t"],
    ]);
  });
  it("a credential for a host is chosen by the username in the policy", async () => {
    const [first] = await sendWithAuth({ authUrl, username: "bob" });
    assert.deepEqual(first?.slice(0, 2), [place("bob"), "bob"]);
  });
  it("a credential for a host is not sent if the policy itself has a password", async () => {
    const [first] = await sendWithAuth({ authUrl, username: "ann", password: "p" });
    assert.deepEqual(first, [undefined, undefined, `Basic ${Buffer.from("ann:p").toString("base64")}`]);
  });
  it("a credential for a host is sent with a reference whose auth is empty", async () => {
    assert.deepEqual(await sendWithAuth({}), [[{ parameter: "/token", region }, undefined, undefined]]);
    assert.deepEqual(await sendWithAuth(undefined), [[undefined, undefined, undefined]]);
    assert.deepEqual(await sendWithAuth({ staticToken: "s" }), [[undefined, undefined, "Bearer s"]]);
  });
});

describe("a recorded response", () => {
  const recordAnswer = (answer: object) =>
    createRecordedCapabilities({
      http: [{ url: "http://mock/x", answer: { status: 200, body: '{"n":1}', ...answer } }],
    });
  const settings: PolicyHttpSettings = { ...defaultHttpSettings, hosts: ["mock"] };

  it("a recorded response has header names as Go writes them", async () => {
    const { http } = recordAnswer({
      headers: { "content-type": ["a"], "X-A": ["b", "c"] },
      trailers: { "x-end": ["d"] },
    });
    assert.deepEqual(await createPolicyHttpCapabilities(settings, http).fetchReference({ url: "http://mock/x" }), {
      body: { n: 1 },
      header: { "Content-Type": ["a"], "X-A": ["b", "c"] },
      trailer: { "X-End": ["d"] },
    });
  });
  it("a recorded response can have no headers", async () => {
    const { header, trailer } = await createPolicyHttpCapabilities(settings, recordAnswer({}).http).fetchReference({
      url: "http://mock/x",
    });
    assert.deepEqual([header, trailer], [{}, {}]);
  });
  it("a recorded response is missing if the request was not recorded; the error shows no secrets", async () => {
    const answer = createPolicyHttpCapabilities(settings, recordAnswer({}).http).fetchReference({
      url: "http://mock/y",
      auth: { staticToken: "hush" },
    });
    await assert.rejects(answer, (error: Error) => {
      assert.match(error.message, /^no answer is recorded to \{.*"url":"http:\/\/mock\/y"\}/);
      assert.doesNotMatch(error.message, /hush|connect/);
      return true;
    });
  });
});
