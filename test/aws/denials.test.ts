import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, describe, it } from "node:test";
import { CloudFormation } from "@aws-sdk/client-cloudformation";
import { Ajv } from "ajv";
import { parse } from "yaml";
import { sendRequest } from "#lib/cluster/https-request.ts";
import schema from "#lib/core/log-line.schema.json" with { type: "json" };
import type { AdmissionRequest } from "#lib/review.ts";
import { type Checkout, openCheckout } from "../checkout.ts";
import { needs } from "../parts.ts";
import { buildPodReview } from "../requests.ts";
import { type Account, openAccount } from "./account.ts";
import { evaluateQuery } from "./insights.ts";
import { lint } from "./tools.ts";

// Tests `postern status --denials`, which shows an operator the denied requests of users and the reasons. Lambda's
// runtime client writes the logged lines.

const buildRule = (sentence: string, { security = false } = {}) => `
import { rule } from "#lib/rule.ts";
type Noted = { metadata?: { labels?: Record<string, string> }; data?: Record<string, string> };
export default rule({
  summary: "Refuses what has no owner.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods", "secrets"], operations: ["CREATE"] }],
  ${security ? "guards: true," : ""}
  validate({ metadata, data }: Noted) {
    if (data?.fail) throw new Error("it fails");
    if (!metadata?.labels?.owner) return ${sentence};
  },
});
`;
const cases = `
- name: takes what has an owner
  validate: { metadata: { name: a, labels: { owner: jane } } }
  admitted: true
`;
const exceptions = `[
  { namespaces: [legacy], until: 2999-12-31, owner: team-billing, reason: OPS-231 },
  { users: [jane, joe], namespaces: [old], until: 2020-01-31, owner: team-shop, reason: OPS-7 } ]`;
const buildConfig = (logs = "") => `${logs}
rules: { require-owner: { exempt: { exceptions: ${exceptions} } }, suggest-owner: { mode: warn } }
clusters: { shop: {}, lab: {} }
`;

const cfnLint = await needs("cfn-lint");

const readTemplate = (page: string): string =>
  /`denials\.yml`[^`]*```yaml\n([^`]+)```/.exec(page)?.[1] ??
  assert.fail("docs/how-to/send-logs-elsewhere.md has no denials.yml");

describe("the denials of a stage", await needs("moto", "runtime client"), () => {
  let account: Account;
  let checkout: Checkout;
  const segments: Record<string, string> = {};
  const [ci, jane] = ["system:serviceaccount:shop:ci", "jane@example.com"];

  before(async () => {
    [account, checkout] = await Promise.all([openAccount(), openCheckout()]);
    account.lambda.updateMilliseconds = 0;
    await checkout.rule("require-owner", buildRule("'no owner: ' + (data?.password ?? '')", { security: true }), cases);
    await checkout.rule("suggest-owner", buildRule('"an owner would help"'), cases);
    await checkout.write("ca.pem", account.ca);
    await deploy();
    for (const cluster of ["shop", "lab"])
      segments[cluster] = (await run("key", cluster, "--stage", "test")).stdout.trim();
    const secrets = { group: "", version: "v1", resource: "secrets" };
    const password = Buffer.from("correct horse").toString("base64");
    await send("shop", "require-owner", { userInfo: { username: ci }, namespace: "shop", name: "web-1" });
    await send("shop", "require-owner", { userInfo: { username: ci }, namespace: "shop", name: "web-2" });
    await send("shop", "suggest-owner", { userInfo: { username: ci }, namespace: "shop", name: "web-1" });
    const secret = { resource: secrets, object: { data: { password } } };
    await send("lab", "require-owner", { userInfo: { username: jane }, ...secret });
    const object = { metadata: { name: "a", labels: { owner: "jane" } } };
    await send("lab", "require-owner", { userInfo: { username: jane }, object });
    await send("lab", "require-owner", { object: { data: { fail: "now" } } }, 500);
    for (const name of ["old-1", "old-2"]) await send("lab", "require-owner", { namespace: "legacy", name });
  });
  after(async () => {
    await account?.stop();
    await checkout?.remove();
  });

  const run = (...words: string[]) => checkout.postern(account.env, ...words);
  const requireSuccess = async (...words: string[]) => {
    const { code, stdout, stderr } = await run(...words);
    assert.equal(code, 0, stdout + stderr);
    return stdout;
  };
  const deploy = async (logs?: string) => {
    await checkout.write("postern.yaml", buildConfig(logs));
    await requireSuccess("deploy", "--stage", "test", "--ca", "ca.pem", "--write", "entries");
  };
  /** Sends a review as an API server does. */
  const send = async (cluster: string, rule: string, changes: Partial<AdmissionRequest>, code = 200) => {
    const url = `${account.baseUrl}/${segments[cluster]}/${rule}/validate?timeout=10s`;
    const options = { method: "POST", headers: { "content-type": "application/json" }, ca: account.ca };
    const answer = await sendRequest(url, options, JSON.stringify(buildPodReview(changes)), Date.now() + 20_000);
    assert.equal(answer.status, code, answer.body);
  };
  const showDenials = (...words: string[]) => requireSuccess("status", "--denials", "--stage", "test", ...words);
  const readDenials = async (...words: string[]) => {
    const { denials, ...rest } = JSON.parse(await showDenials("-o", "json", ...words));
    return { ...rest, denials: denials.map(({ last, ...denial }: { last: string }) => denial) };
  };
  const commonFields = { operation: "CREATE", resource: "pods", namespace: "shop" };
  const enforced = { ...commonFields, cluster: "shop", rule: "require-owner", mode: "enforce", user: ci };
  const warned = { ...commonFields, cluster: "shop", rule: "suggest-owner", mode: "warn", user: ci };
  const expectedDenials = [
    { ...enforced, message: "no owner: ", example: "web-2", times: 2 },
    { ...warned, message: "an owner would help", example: "web-1", times: 1 },
    {
      cluster: "lab",
      rule: "require-owner",
      mode: "enforce",
      user: jane,
      message: "no owner: ***",
      operation: "CREATE",
      resource: "secrets",
      times: 1,
    },
  ];

  it("denials are printed with user, object and message, and the most frequent denial comes first", async () => {
    const text = await showDenials();
    assert.match(text, /^4 denials since \d{4}-\d\d-\d\dT/);
    assert.match(text, /^TIMES {2}LAST +CLUSTER {2}RULE +MODE +USER +WHAT +WHY$/m);
    // Three lines come before the first denial.
    const firstDenial = text.split("\n")[3];
    assert.match(
      String(firstDenial),
      /^2 +2\d{3}-\S+Z +shop +require-owner +enforce +system:serviceaccount:shop:ci +CREATE pods shop\/web-2 +no owner:$/,
    );
    assert.doesNotMatch(text, /correct horse/);
  });

  it("denials can be printed as JSON: of the stage, of one rule, or of one cluster", async () => {
    const { since, ...report } = await readDenials();
    assert.ok(Math.abs(Date.now() - Date.parse(since) - 24 * 3_600_000) < 600_000, since);
    assert.deepEqual(report, { stage: "test", denials: expectedDenials, complete: true });
    const ofSuggestOwner = await readDenials("--rule", "suggest-owner", "--since", "7d");
    assert.deepEqual(ofSuggestOwner.denials, expectedDenials.slice(1, 2));
    const inLab = await readDenials("--cluster", "lab", "--rule", "require-owner");
    assert.deepEqual(inLab.denials, expectedDenials.slice(2));
    assert.match(await showDenials("--cluster", "lab", "--rule", "suggest-owner"), /^0 denials since \S+\n$/);
  });

  it("denials count in the plan's estimate of costs; probes and cases don't", async () => {
    const { stdout, stderr } = await run("deploy", "--stage", "test", "--ca", "ca.pem", "--plan-only", "-o", "json");
    const { costs }: { costs?: { rule: string; reviews: number }[] } = stdout === "" ? {} : JSON.parse(stdout);
    assert.deepEqual(
      costs?.map(({ rule, reviews }) => [rule, reviews]),
      // As many reviews as `before` sends for each rule.
      [
        ["require-owner", 7],
        ["suggest-owner", 1],
      ],
      stderr,
    );
  });

  it("requests that an exception allows are no denials; status counts such requests by exception", async () => {
    const status = ["status", "--stage", "test", "--config", "postern.yaml", "--since", "2h"];
    const { exceptions } = JSON.parse((await run(...status, "-o", "json")).stdout);
    const legacy = { namespaces: ["legacy"], until: "2999-12-31", owner: "team-billing", reason: "OPS-231" };
    const old = {
      users: ["jane", "joe"],
      namespaces: ["old"],
      until: "2020-01-31",
      owner: "team-shop",
      reason: "OPS-7",
      rule: "require-owner",
      ended: true,
      times: 0,
    };
    const [legacyInShop, , legacyInLab] = exceptions;
    assert.deepEqual(exceptions, [
      { ...legacy, cluster: "shop", rule: "require-owner", ended: false, times: 0 },
      { ...old, cluster: "shop" },
      { ...legacy, cluster: "lab", rule: "require-owner", ended: false, times: 2, last: legacyInLab.last },
      { ...old, cluster: "lab" },
    ]);
    assert.equal(legacyInShop.last, undefined);
    assert.ok(Math.abs(Date.now() - Date.parse(legacyInLab.last)) < 600_000, legacyInLab.last);
    const { stdout } = await run(...status);
    assert.match(stdout, /^exceptions, and how often each let a review through since \d{4}-\S+Z$/m);
    assert.match(stdout, /^lab +require-owner +namespaces legacy +2999-12-31 +2 +2\S+Z +team-billing +OPS-231$/m);
    assert.match(
      stdout,
      /^lab +require-owner +users jane, joe; namespaces old +2020-01-31 \(ended\) +0 +- +team-shop +OPS-7$/m,
    );
  });

  it("the plan reports an exception that has ended", async () => {
    const { stdout } = await run("deploy", "--stage", "test", "--ca", "ca.pem", "--plan-only");
    assert.match(
      stdout,
      /^postern\.yaml:4 the exception from require-owner until 2020-01-31 \(team-shop\): OPS-7 has ended; it can be deleted$/m,
    );
    assert.doesNotMatch(stdout, /OPS-231 (ends|has ended)/);
  });

  const refusedWords: [words: string[], code: number, sentence: RegExp][] = [
    [
      ["--denials", "--stage", "test", "--rule", "owner"],
      2,
      /no release has the rule "owner"; there are require-owner, /,
    ],
    [
      ["--denials", "--stage", "test", "--cluster", "prod"],
      2,
      /no release has the cluster "prod"; there are lab, shop/,
    ],
    [
      ["--denials", "--stage", "test", "--rule", 'a" or 1'],
      2,
      /--rule takes a rule name, such as pod-security, not "a" or 1"/,
    ],
    [
      ["--denials", "--stage", "test", "--cluster", "A|"],
      2,
      /--cluster takes a cluster name, such as prod-eu, not "A\|"/,
    ],
    [
      ["--denials", "--stage", "test", "--since", "31d"],
      2,
      /--since takes a time from 1m to 30d, for instance .* not "31d"/,
    ],
    [["--denials"], 2, /--stage must name the stage/],
    [["--stage", "test", "--rule", "require-owner"], 2, /--rule is for --denials/],
    [["--denials", "--stage", "other"], 1, /stage other has no log group \/aws\/lambda\/postern-other/],
  ];
  for (const [words, code, sentence] of refusedWords)
    it(`status refuses wrong options in a sentence: ${words.join(" ")}`, async () => {
      const result = await run("status", ...words);
      assert.match(result.stderr, sentence);
      assert.equal(result.code, code);
    });

  it("the log lines of reviews have the form that the package documents", () => {
    const isLogLine = new Ajv().compile(schema);
    const lines = (account.logs.groups.get("/aws/lambda/postern-test") ?? []).map(({ line }) => JSON.parse(line));
    const reviews = lines.filter((line) => "Reviews" in line);
    assert.ok(reviews.length >= 6, `${reviews.length}`);
    for (const line of reviews) assert.ok(isLogLine(line), JSON.stringify([line, isLogLine.errors]));
  });

  it("saved queries show the denials and errors of a stage; status names all saved queries", async () => {
    const names = ["denials", "errors by rule", "slowest reviews", "cold starts", "guards that failed"];
    const savedNames = names.map((name) => `postern-test/${name}`);
    assert.deepEqual([...account.logs.saved.values()].map(({ Name }) => Name).sort(), savedNames.toSorted());
    const status = ["status", "--stage", "test", "--config", "postern.yaml"];
    const { stdout } = await run(...status);
    assert.ok(stdout.includes(`queries that CloudWatch Logs Insights has saved: ${savedNames.join(", ")}\n`), stdout);
    assert.deepEqual(JSON.parse((await run(...status, "-o", "json")).stdout).queries, savedNames);
    const runSavedQuery = (name: string) => {
      const { QueryString = "", LogGroupNames = [] } =
        [...account.logs.saved.values()].find(({ Name }) => Name === `postern-test/${name}`) ?? {};
      assert.deepEqual(LogGroupNames, ["/aws/lambda/postern-test"]);
      return evaluateQuery(QueryString, account.logs.groups.get("/aws/lambda/postern-test") ?? []);
    };
    assert.deepEqual(
      runSavedQuery("denials").map(({ user, message, times }) => [user, message, times]),
      expectedDenials.map(({ user, message, times }) => [user, message, `${times}`]),
    );
    for (const name of ["errors by rule", "guards that failed"])
      assert.deepEqual(
        runSavedQuery(name).map(({ last, errors, failures, ...failed }) => [failed, errors ?? failures]),
        [[{ function: "postern-test-require-owner", Rule: "require-owner", Cluster: "lab", code: "500" }, "1"]],
      );
  });

  it("the template of docs/how-to/send-logs-elsewhere.md sends denials to a stream, and nothing else", async () => {
    const page = await readFile(new URL("../../docs/how-to/send-logs-elsewhere.md", import.meta.url), "utf8");
    const { Parameters, ...template } = parse(readTemplate(page));
    assert.deepEqual(Object.keys(Parameters), ["Stage", "Stream"]);
    const Stream = "arn:aws:firehose:eu-west-1:123456789012:deliverystream/denials";
    // The stand-in for CloudFormation knows no parameters, so the test replaces them.
    const body = JSON.stringify(template)
      .replaceAll(/\$\{Stage\}/g, "test")
      .replaceAll('{"Ref":"Stream"}', `"${Stream}"`);
    const client = new CloudFormation(account.actAs("operator"));
    await client.createStack({ StackName: "denials", TemplateBody: body, Capabilities: ["CAPABILITY_IAM"] });
    await account.cloudformation.waitUntilIdle();
    assert.equal(account.cloudformation.stack("denials")?.status, "CREATE_COMPLETE");
    await send("lab", "require-owner", { userInfo: { username: jane }, name: "api" });
    await send("lab", "suggest-owner", { userInfo: { username: jane }, name: "api" });
    await send("lab", "require-owner", { object: { metadata: { labels: { owner: "jane" } } } });
    await send("lab", "require-owner", { object: { data: { fail: "now" } } }, 500);
    assert.deepEqual(
      (account.logs.sent.get(Stream) ?? []).map((line) => {
        const { verdict, user, message, name } = JSON.parse(line);
        return [verdict, user, message, name];
      }),
      [
        ["denied", jane, "no owner: ", "api"],
        ["would be denied", jane, "an owner would help", "api"],
      ],
    );
    await client.deleteStack({ StackName: "denials" });
    await account.cloudformation.waitUntilIdle();
  });

  it("cfn-lint finds no fault in the template of docs/how-to/send-logs-elsewhere.md", cfnLint, async () => {
    const page = await readFile(new URL("../../docs/how-to/send-logs-elsewhere.md", import.meta.url), "utf8");
    await lint(await checkout.write("denials.yml", readTemplate(page)));
  });

  it("denials are logged without user and message if postern.yaml has `logs: minimal`", async () => {
    await deploy("logs: minimal");
    const before = account.logs.groups.get("/aws/lambda/postern-test")?.length ?? 0;
    await send("shop", "require-owner", { userInfo: { username: jane }, namespace: "shop", name: "web-9" });
    const lines = (account.logs.groups.get("/aws/lambda/postern-test") ?? []).slice(before);
    assert.equal(lines.length, 1);
    assert.doesNotMatch(String(lines[0]?.line), /jane|owner:/);
    assert.match(await showDenials(), /^1 .* shop +require-owner +enforce +- +CREATE pods shop\/web-9 +-$/m);
  });

  it("saved queries are deleted with the stage", async () => {
    await requireSuccess("destroy", "--stage", "test", "--yes", "--forget", "shop,lab");
    assert.equal(account.logs.saved.size, 0);
  });
});
