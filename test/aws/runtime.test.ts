import assert from "node:assert/strict";
import { generateKeyPairSync, sign } from "node:crypto";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { buildTextToSignForUrlKey } from "#lib/core/url-key.ts";
import type { Case } from "#lib/recording/recording.ts";
import { bundleRule } from "../../infra/build/bundle.ts";
import { writeServerlessIncludes } from "../../infra/build/deployment.ts";
import { describeCaseDifferences, parseDecision } from "../../infra/catalogue/case-differences.ts";
import { buildInvocationEvent, buildReview, getCasePhase, readCases } from "../../infra/catalogue/cases.ts";
import { type CatalogueRule, readCatalogue } from "../../infra/catalogue/registry.ts";
import { needs } from "../parts.ts";
import { type RunningFunction, start } from "../runtime/runtime-api.ts";
import { runtimeClient } from "./tools.ts";

// Runs the bundles of all rules under Lambda's own runtime client. POSTERN_RULES limits the test to some rules.
const chosenRules = process.env.POSTERN_RULES?.split(",").filter(Boolean) ?? [];
const isChosen = (name: string) => chosenRules.length === 0 || chosenRules.includes(name);
const catalogue = (await readCatalogue()).filter(({ name }) => isChosen(name));

const { publicKey, privateKey } = generateKeyPairSync("ed25519");
const keys = String(publicKey.export({ format: "jwk" }).x);
const segment = `local.${sign(null, Buffer.from(buildTextToSignForUrlKey("local", 1)), privateKey).toString("base64url")}`;

describe("the bundles of all rules under Lambda's runtime client", await needs("runtime client"), () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "postern-runtime-"));
    // The tests of the build check the size budget.
    const bundles = catalogue.map((listed) =>
      bundleRule(listed, buildConfig(listed), join(folder, "dist"), { budgetBytes: Number.POSITIVE_INFINITY }),
    );
    await writeServerlessIncludes(await Promise.all(bundles), keys, join(folder, "dist"));
  });
  after(() => rm(folder, { recursive: true, force: true }));

  for (const listed of catalogue) {
    describe(listed.name, () => {
      let running: RunningFunction;
      let cases: Case[];
      before(async () => {
        running = await start(join(runtimeClient, "index.mjs"), await readEnvironment(folder, listed.name));
        cases = await readCases(listed);
      });
      after(() => running?.stop());

      it("a bundle gives the outcomes of its rule's cases", async () => {
        for (const entry of cases) {
          const answer = await running.invoke(buildInvocationEvent(listed, entry));
          assert.deepEqual(describeCaseDifferences(entry, readDecision(answer, listed, entry)), [], entry.name);
        }
      });

      it("a bundle gives the outcome of a case also over HTTP, with a valid key", async () => {
        // A request over HTTP can't contain the settings and needs of a case.
        const plainCase = cases.find(
          ({ settings, needs, variant, now }) => (settings ?? needs ?? variant ?? now) === undefined,
        );
        if (plainCase === undefined || Object.keys(listed.rule.needs ?? {}).length > 0) return;
        const { statusCode, body } = readResponse(await running.invoke(buildEvent(listed, plainCase)));
        assert.equal(statusCode, 200, body);
        const decision = readDecision(JSON.parse(body), listed, plainCase);
        assert.deepEqual(describeCaseDifferences(plainCase, decision), [], plainCase.name);
      });

      it("a bundle answers 404 for a wrong key", async () => {
        const [entry] = cases;
        assert.ok(entry);
        const wrongKey = `local.${"A".repeat(86)}`;
        const event = buildEvent(listed, entry, { segment: wrongKey });
        const { statusCode, body } = readResponse(await running.invoke(event));
        assert.equal(statusCode, 404);
        assert.equal(JSON.parse(body).reason, "NotFound");
      });

      it("a bundle answers 400 for a body that is not base64", async () => {
        const [entry] = cases;
        assert.ok(entry);
        const event = buildEvent(listed, entry, { body: "%%%", isBase64Encoded: true });
        const { statusCode, body } = readResponse(await running.invoke(event));
        assert.equal(statusCode, 400);
        assert.equal(JSON.parse(body).kind, "Status");
      });
    });
  }
});

const buildConfig = ({ name, rule }: CatalogueRule) => {
  const local = { keyVersions: [1], mode: "enforce" as const, settings: rule.settings ?? {} };
  return { rule: name, clusters: { local } };
};

/** Returns the environment that Lambda gives a function, with the variables of serverless.yml. */
const readEnvironment = async (folder: string, name: string): Promise<Record<string, string>> => {
  const functions = JSON.parse(await readFile(join(folder, "dist/functions.json"), "utf8"));
  const { handler, environment, memorySize } = functions[name];
  return {
    ...environment,
    POSTERN_STAGE: "test",
    _HANDLER: handler,
    LAMBDA_TASK_ROOT: join(folder, "dist", name),
    AWS_REGION: "eu-west-1",
    AWS_LAMBDA_FUNCTION_NAME: `postern-test-${name}`,
    AWS_LAMBDA_FUNCTION_VERSION: "1",
    AWS_LAMBDA_FUNCTION_MEMORY_SIZE: String(memorySize),
    AWS_LAMBDA_LOG_GROUP_NAME: `/aws/lambda/postern-test-${name}`,
    AWS_LAMBDA_LOG_STREAM_NAME: "test",
  };
};

/** Returns the event by which an HTTP API sends a case as a review, with payload format 2.0. */
const buildEvent = (
  listed: CatalogueRule,
  entry: Case,
  changes: { segment?: string; body?: string; isBase64Encoded?: boolean } = {},
) => {
  const path = `/${changes.segment ?? segment}/${listed.name}/${getCasePhase(entry)}`;
  return {
    version: "2.0",
    routeKey: `POST /{cluster}/${listed.name}/{phase+}`,
    rawPath: path,
    rawQueryString: "timeout=3s",
    headers: { "content-type": "application/json", "user-agent": "kube-apiserver-admission" },
    queryStringParameters: { timeout: "3s" },
    requestContext: { http: { method: "POST", path, protocol: "HTTP/1.1", sourceIp: "192.0.2.1" }, stage: "$default" },
    body: changes.body ?? JSON.stringify(Reflect.get(buildInvocationEvent(listed, entry), "review")),
    isBase64Encoded: changes.isBase64Encoded ?? false,
  };
};

const readDecision = (answer: unknown, listed: CatalogueRule, entry: Case) => {
  const decision = parseDecision(answer, buildReview(listed, entry).request.uid);
  assert.ok(decision, `no answer to this review: ${JSON.stringify(answer)}`);
  return decision;
};

const readResponse = (answer: unknown): { statusCode: unknown; body: string } => {
  const { statusCode, body } = Object(answer);
  return { statusCode, body: String(body) };
};
