import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { SSM } from "@aws-sdk/client-ssm";
import { parseJson } from "#lib/json.ts";
import { facts } from "../account/facts/facts.ts";
import { cacheVariables } from "../checkout.ts";
import { waitUntil } from "../parity/rule-server.ts";
import { needs } from "../parts.ts";
import { type Account, openAccount } from "./account.ts";
import { defaultQuotas } from "./lambda.ts";

// Runs the suite for a real account against the stand-ins. If it passes here, a failure in a real account is one of
// the facts, and not a fault of the suite.

const program = fileURLToPath(new URL("../account/run.ts", import.meta.url));

describe("the suite for a real account", await needs("moto", "runtime client"), () => {
  let account: Account;
  let folder: string;
  let clock: NodeJS.Timeout;

  before(async () => {
    [account, folder] = await Promise.all([openAccount(), mkdtemp(join(tmpdir(), "postern-report-"))]);
    await writeFile(join(folder, "ca.pem"), account.ca);
    // CloudWatch's clock runs twenty times faster than this machine's, so that five minutes of metrics take fifteen
    // seconds.
    clock = setInterval(() => {
      account.cloudwatch.clockOffset += 1900;
    }, 100);
  });
  after(async () => {
    clearInterval(clock);
    await account?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  /** Starts the suite. Returns its process, a promise for its exit code, and a function that returns its output. */
  const startSuite = (...words: string[]) => startSuiteWith({}, ...words);
  const startSuiteWith = (variables: Record<string, string>, ...words: string[]) => {
    const { env: caller } = account.actAs("tester");
    const env = { PATH: process.env.PATH, HOME: folder, ...cacheVariables, ...caller, ...variables };
    const child = spawn(process.execPath, [program, "--region", "eu-west-1", ...words], {
      cwd: folder,
      env: { ...env, NODE_EXTRA_CA_CERTS: join(folder, "ca.pem") },
    });
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text: string) => {
        output += text;
      });
    const ended = new Promise<number | null>((resolve) => child.on("close", resolve));
    return { child, ended, readOutput: () => output };
  };
  const readReport = () => readFile(join(folder, "account-report.md"), "utf8");
  /** Returns the result of each fact in the report. */
  const readFacts = async () => {
    const [, table = ""] = (await readReport()).split("## Facts");
    const rows = table.split("## Steps")[0]?.matchAll(/^\| ([a-z0-9-]+) \| \**([a-z ]+?)\** \| (.*) \|$/gm) ?? [];
    return new Map([...rows].map(([, id = "", result = "", sentence = ""]) => [id, { result, sentence }]));
  };
  const listLiveStacks = () =>
    [...account.cloudformation.stacks.values()].filter(({ status }) => status !== "DELETE_COMPLETE");

  // The seed chooses between a normal account, one in which facts differ on purpose, and a new account, because each
  // run takes minutes.
  const chosenAccount = Number(process.env.POSTERN_SEED) % 3;
  const skip = () => {};
  const [itAsIs = it, itPlanted = it, itNew = it] = [0, 1, 2].map((part) => (part === chosenAccount ? it : skip));

  itAsIs("the suite sees every fact, and leaves nothing in the account", async () => {
    const { ended, readOutput } = startSuite("--stage", "suite", "--budget", "5");
    const code = await ended;
    const seenFacts = await readFacts();
    assert.deepEqual(
      [...seenFacts].filter(([, { result }]) => result !== "seen"),
      [],
      readOutput(),
    );
    assert.equal(seenFacts.size, facts.length);
    assert.equal(code, 0, readOutput());
    assert.match(await readReport(), /\| left in the account \| nothing \|/);
    for (const row of ["suite | cold", "suite | warm", "suite-url | cold", "suite-url | warm"])
      assert.match(await readReport(), new RegExp(`^\\| ${RegExp.escape(row)} \\| [1-9]\\d* \\| \\d`, "m"));
    assert.deepEqual([listLiveStacks(), account.lambda.functions.size], [[], 0]);
  });

  itNew("the suite passes in an account with ten concurrent executions, and leaves nothing", async () => {
    account.lambda.quotas.concurrency = 10;
    const { ended, readOutput } = startSuite("--stage", "fresh", "--budget", "5");
    const code = await ended.finally(() => {
      account.lambda.quotas = { ...defaultQuotas };
    });
    const differing = [...(await readFacts())].filter(([, { result }]) => result !== "seen");
    assert.deepEqual(
      differing.map(([id, { result }]) => `${id} ${result}`),
      ["reserved-leaves-100 not seen", "provisioned-weighted-alias not seen", "provisioned-version not seen"],
      readOutput(),
    );
    assert.equal(code, 0, readOutput());
    assert.match(await readReport(), /\| left in the account \| nothing \|/);
  });

  itPlanted("the suite reports the facts that differ, and the resources that could not be destroyed", async () => {
    const { lambda, s3 } = account;
    const [answerLambda, answerS3] = [lambda.answer, s3.answer];
    // In this account, Lambda publishes code with any hash.
    lambda.answer = async (request) => {
      const { CodeSha256: _, ...rest } = Object(parseJson(String(request.body)));
      const isPublishing = request.method === "POST" && request.path.endsWith("/versions");
      return answerLambda(isPublishing ? { ...request, body: Buffer.from(JSON.stringify(rest)) } : request);
    };
    // In this account, S3 overwrites objects in spite of conditions.
    s3.answer = ({ headers: { "if-none-match": _, ...headers }, ...request }) => answerS3({ ...request, headers });
    // In this account, the log group also gets Lambda's own lines.
    const group = "/aws/lambda/postern-planted";
    const timer = setInterval(() => account.logs.write(group, "platform", '{"type":"platform.start"}'), 1000);
    account.allow = ({ action, caller }) => !(action === "lambda:DeleteFunction" && caller === "cloudformation");
    const { ended, readOutput } = startSuite("--stage", "planted", "--budget", "5");
    const code = await ended.finally(() => {
      clearInterval(timer);
      account.allow = undefined;
      Object.assign(lambda, { answer: answerLambda });
      Object.assign(s3, { answer: answerS3 });
    });
    assert.equal(code, 1, readOutput());
    const differing = [...(await readFacts())].filter(([, { result }]) => result !== "seen");
    assert.deepEqual(
      differing.map(([id, { result }]) => `${id} ${result}`),
      ["publish-wrong-hash differs", "no-platform-lines differs", "s3-write-if-absent differs"],
      readOutput(),
    );
    const report = await readReport();
    assert.match(report, /\| destroy planted \| \*\*failed\*\* \|/);
    assert.match(report, /^- stack postern-planted-url \(DELETE_FAILED\)$/m);
    assert.match(report, /^- function postern-planted-do-as-annotated$/m);
  });

  itPlanted("the suite destroys everything with --destroy", async () => {
    const { ended, readOutput } = startSuite("--stage", "planted", "--destroy");
    assert.equal(await ended, 0, readOutput());
    assert.deepEqual([listLiveStacks(), account.lambda.functions.size], [[], 0]);
  });

  it("the suite destroys everything when it is stopped by SIGINT", async () => {
    const { child, ended, readOutput } = startSuite("--stage", "stopped", "--budget", "5");
    await waitUntil("the suite deployed nothing in time", async () => account.lambda.functions.size > 0);
    child.kill("SIGINT");
    assert.equal(await ended, 1, readOutput());
    assert.match(await readReport(), /\| left in the account \| nothing \|/);
    assert.deepEqual([listLiveStacks(), account.lambda.functions.size], [[], 0]);
  });

  const refusals: [title: string, words: string[], sentence: RegExp][] = [
    ["a budget that is too small", ["--stage", "suite", "--budget", "0.5"], /which is more than --budget 0.5/],
    ["no budget", ["--stage", "suite"], /--budget takes the most dollars/],
    ["a long name", ["--stage", "a-very-long-name", "--budget", "5"], /--stage takes a name for a new stage/],
    [
      "a stage that exists",
      ["--stage", "taken", "--budget", "5"],
      /the account already has the parameter \/postern\/taken\/keys/,
    ],
  ];
  for (const [title, words, sentence] of refusals)
    it(`the suite refuses ${title}, and creates nothing`, async () => {
      const parameter = { Name: "/postern/taken/keys", Value: "a", Type: "String" as const, Overwrite: true };
      await new SSM(account.actAs("tester")).putParameter(parameter);
      const { ended, readOutput } = startSuite(...words);
      assert.equal(await ended, 2);
      assert.match(readOutput(), sentence);
      assert.deepEqual(listLiveStacks(), []);
    });

  const inMinutes = (minutes: number) => new Date(Date.now() + minutes * 60_000).toISOString();
  const credentials: [title: string, expiration: string, sentence: RegExp][] = [
    ["an unknown end", "", /AWS_SESSION_TOKEN is set, and AWS_CREDENTIAL_EXPIRATION must say when/],
    ["too early an end", inMinutes(40), /a run needs 30 minutes and 20 for the destruction/],
  ];
  for (const [title, expiration, sentence] of credentials)
    it(`the suite refuses temporary credentials with ${title}, and creates nothing`, async () => {
      const temporary = { AWS_SESSION_TOKEN: "token", AWS_CREDENTIAL_EXPIRATION: expiration };
      const { ended, readOutput } = startSuiteWith(temporary, "--stage", "early", "--budget", "5");
      assert.equal(await ended, 2);
      assert.match(readOutput(), sentence);
      assert.deepEqual(listLiveStacks(), []);
    });

  it("the suite stops before temporary credentials end, so that time is left to destroy everything", async () => {
    // The destruction needs 20 of the 90 minutes.
    const temporary = { AWS_SESSION_TOKEN: "token", AWS_CREDENTIAL_EXPIRATION: inMinutes(90.5) };
    const { child, ended, readOutput } = startSuiteWith(temporary, "--stage", "early", "--budget", "5");
    await waitUntil("the suite did not say in time when it stops", async () =>
      /stops after \d+ minutes/.test(readOutput()),
    );
    child.kill("SIGINT");
    await ended;
    assert.match(
      readOutput(),
      /^The credentials end before that, so the run stops after (69|70) minutes and destroys/m,
    );
    assert.deepEqual([listLiveStacks(), account.lambda.functions.size], [[], 0]);
  });
});
