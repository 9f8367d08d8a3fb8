import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import type { SecretPlace } from "#lib/needs.ts";
import { generateCertificate } from "../../infra/keys/certificates.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { close, listen } from "../listen.ts";
import { needs } from "../parts.ts";
import { type Moto, startMoto } from "./moto.ts";

// Tests a service that requires a token, with the services of AWS that can store tokens.
describe("a service that requires a token", await needs("moto"), () => {
  const region = "eu-west-1";
  /** The places in AWS where the token is stored. */
  const tokenPlaces = [
    { secret: "backend", region },
    { parameter: "/backend", region },
  ] as const;
  let moto: Moto;
  let folder: string;
  let service: { url: string; ca: string };
  let acceptedToken = "first";
  const authorizations: (string | undefined)[] = [];
  const server = createServer((request, response) => {
    authorizations.push(request.headers.authorization);
    response.writeHead(request.headers.authorization === `Bearer ${acceptedToken}` ? 200 : 401).end();
  });

  const callAws = async (target: string, body: object) => {
    const scope = `${region}/${target.startsWith("AmazonSSM") ? "ssm" : "secretsmanager"}`;
    const authorization = `AWS4-HMAC-SHA256 Credential=a/20260101/${scope}/aws4_request`;
    const headers = { "content-type": "application/x-amz-json-1.1", "x-amz-target": target, authorization };
    const response = await fetch(moto.url, { method: "POST", headers, body: JSON.stringify(body) });
    assert.equal(response.status, 200, await response.text());
  };
  const storeToken = async (token: string, { isNew = false } = {}) => {
    const value = { SecretString: token, ClientRequestToken: randomUUID() };
    if (isNew) await callAws("secretsmanager.CreateSecret", { Name: "backend", ...value });
    else await callAws("secretsmanager.PutSecretValue", { SecretId: "backend", ...value });
    const parameter = { Name: "/backend", Value: token, Type: "SecureString", Overwrite: !isNew };
    await callAws("AmazonSSM.PutParameter", parameter);
  };

  before(async () => {
    moto = await startMoto("AWS_ENDPOINT_URL_SECRETS_MANAGER", "AWS_ENDPOINT_URL_SSM");
    folder = await mkdtemp(join(tmpdir(), "postern-secrets-"));
    const { ca, cert, key } = await readOrCreateServerCertificate(folder, "127.0.0.1");
    server.setSecureContext({ cert, key });
    service = { url: `https://127.0.0.1:${await listen(server)}/`, ca };
    await storeToken(acceptedToken, { isNew: true });
  });
  after(async () => {
    moto?.stop();
    await close(server);
    await rm(folder, { recursive: true, force: true });
  });

  const callService = async (bearer: SecretPlace) =>
    (await createLiveCapabilities({})("prod", 20_000).https({ ...service, bearer })).status;

  it("a service gets a token, which a second call uses again", async () => {
    for (const bearer of tokenPlaces) {
      assert.deepEqual([await callService(bearer), await callService(bearer)], [200, 200]);
      assert.equal(authorizations.splice(0).at(-1), "Bearer first");
    }
  });

  it("a service that refuses a token gets the new token of the secret", async () => {
    acceptedToken = "second";
    await storeToken(acceptedToken);
    for (const bearer of tokenPlaces) {
      assert.equal(await callService(bearer), 200);
      assert.deepEqual(authorizations.splice(0), ["Bearer first", "Bearer second"]);
    }
  });

  it("a service gets a user name with the token as the password", async () => {
    for (const bearer of tokenPlaces) {
      await createLiveCapabilities({})("prod", 20_000).https({ ...service, bearer, username: "ann" });
      assert.equal(authorizations.splice(0)[0], `Basic ${Buffer.from("ann:second").toString("base64")}`);
    }
  });

  it("a service gets the client certificate whose key is in the same secret", async () => {
    const { ca, cert, key } = await readOrCreateServerCertificate(folder, "127.0.0.1");
    const client = await generateCertificate(ca, await readFile(join(folder, "ca.key"), "utf8"), ["a"], "clientAuth");
    const guarded = createServer({ ca, cert, key, requestCert: true }, (_, response) => response.end());
    const url = `https://127.0.0.1:${await listen(guarded)}/`;
    await callAws("secretsmanager.CreateSecret", {
      Name: "client",
      ClientRequestToken: randomUUID(),
      SecretString: `${client.certificate}${client.key}`,
    });
    const clientSecret = { secret: "client", region };
    const { https } = createLiveCapabilities({})("prod", 20_000);
    assert.equal((await https({ url, ca, client: { certificate: clientSecret, key: clientSecret } })).status, 200);
    await close(guarded);
  });

  it("a service is called only twice if it accepts no token", async () => {
    acceptedToken = "none";
    assert.equal(await callService(tokenPlaces[0]), 401);
    assert.equal(authorizations.splice(0).length, 2);
  });

  it("a service is not called if its token can't be read", async () => {
    const sentence = /^could not ask 127\.0\.0\.1:\d+: its token could not be read$/;
    await assert.rejects(callService({ secret: "other", region }), { code: 503, message: sentence });
    assert.equal(authorizations.length, 0);
  });
});
