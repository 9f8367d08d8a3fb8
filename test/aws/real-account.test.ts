import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { SSM } from "@aws-sdk/client-ssm";
import { parseJson } from "#lib/json.ts";
import { waitUntil } from "../../infra/parity/rule-server.ts";
import { facts } from "../account/facts/facts.ts";
import { cacheVariables } from "../checkout.ts";
import { needs } from "../parts.ts";
import { type Account, openAccount } from "./account.ts";

// The suite for a real account, against the stand-ins: on AWS only the facts are new.

const program = fileURLToPath(new URL("../account/run.ts", import.meta.url));

describe("the suite for a real account", await needs("moto", "runtime client"), () => {
  let account: Account;
  let folder: string;
  let clock: NodeJS.Timeout;

  before(async () => {
    [account, folder] = await Promise.all([openAccount(), mkdtemp(join(tmpdir(), "postern-report-"))]);
    await writeFile(join(folder, "ca.pem"), account.ca);
    // CloudWatch's clock runs twenty times faster, so that five minutes of metrics take fifteen seconds.
    clock = setInterval(() => {
      account.cloudwatch.ahead += 1900;
    }, 100);
  });
  after(async () => {
    clearInterval(clock);
    await account?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  /** Starts the suite; its output ends up in `lines`. */
  const start = (...words: string[]) => {
    const env = { PATH: process.env.PATH, HOME: folder, ...cacheVariables, ...account.actAs("tester").env };
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
  /** Returns what the report says of each fact. */
  const readFacts = async () => {
    const [, table = ""] = (await readReport()).split("## Facts");
    const rows = table.split("## Steps")[0]?.matchAll(/^\| ([a-z0-9-]+) \| \**([a-z ]+?)\** \| (.*) \|$/gm) ?? [];
    return new Map([...rows].map(([, id = "", is = "", sentence = ""]) => [id, { is, sentence }]));
  };
  const listLiveStacks = () =>
    [...account.cloudformation.stacks.values()].filter(({ status }) => status !== "DELETE_COMPLETE");

  // An account as it should be, and one with planted differences: each takes minutes, so an even seed chooses the first.
  const isPlanted = Number(process.env.POSTERN_SEED) % 2 === 1;
  const leaveOut = () => {};
  const [itAsIs, itPlanted] = isPlanted ? [leaveOut, it] : [it, leaveOut];

  itAsIs("sees every fact and leaves nothing", async () => {
    const { ended, readOutput } = start("--stage", "suite", "--budget", "5");
    const code = await ended;
    const found = await readFacts();
    assert.deepEqual(
      [...found].filter(([, { is }]) => is !== "seen"),
      [],
      readOutput(),
    );
    assert.equal(found.size, facts.length);
    assert.equal(code, 0, readOutput());
    assert.match(await readReport(), /\| left in the account \| nothing \|/);
    for (const row of ["suite | cold", "suite | warm", "suite-url | cold", "suite-url | warm"])
      assert.match(await readReport(), new RegExp(`^\\| ${RegExp.escape(row)} \\| [1-9]\\d* \\| \\d`, "m"));
    assert.deepEqual([listLiveStacks(), account.lambda.functions.size], [[], 0]);
  });

  itPlanted("reports what differs, and what could not be destroyed", async () => {
    const { lambda, s3 } = account;
    const [answerLambda, answerS3] = [lambda.answer, s3.answer];
    // This Lambda publishes any code.
    lambda.answer = async (request) => {
      const { CodeSha256: _, ...rest } = Object(parseJson(String(request.body)));
      const isPublishing = request.method === "POST" && request.path.endsWith("/versions");
      return answerLambda(isPublishing ? { ...request, body: Buffer.from(JSON.stringify(rest)) } : request);
    };
    // This S3 writes over every object.
    s3.answer = ({ headers: { "if-none-match": _, ...headers }, ...request }) => answerS3({ ...request, headers });
    // This log group also gets Lambda's own lines.
    const group = "/aws/lambda/postern-planted";
    const lines = setInterval(() => account.logs.write(group, "platform", '{"type":"platform.start"}'), 1000);
    account.allow = ({ action, caller }) => !(action === "lambda:DeleteFunction" && caller === "cloudformation");
    const { ended, readOutput } = start("--stage", "planted", "--budget", "5");
    const code = await ended.finally(() => {
      clearInterval(lines);
      account.allow = undefined;
      Object.assign(lambda, { answer: answerLambda });
      Object.assign(s3, { answer: answerS3 });
    });
    assert.equal(code, 1, readOutput());
    const differing = [...(await readFacts())].filter(([, { is }]) => is !== "seen");
    assert.deepEqual(
      differing.map(([id, { is }]) => `${id} ${is}`),
      ["publish-wrong-hash differs", "no-platform-lines differs", "s3-write-if-absent differs"],
      readOutput(),
    );
    const report = await readReport();
    assert.match(report, /\| destroy planted \| \*\*failed\*\* \|/);
    assert.match(report, /^- stack postern-planted-url \(DELETE_FAILED\)$/m);
    assert.match(report, /^- function postern-planted-do-as-annotated$/m);
  });

  itPlanted("destroys everything with --destroy", async () => {
    const { ended, readOutput } = start("--stage", "planted", "--destroy");
    assert.equal(await ended, 0, readOutput());
    assert.deepEqual([listLiveStacks(), account.lambda.functions.size], [[], 0]);
  });

  it("destroys everything when it is stopped", async () => {
    const { child, ended, readOutput } = start("--stage", "stopped", "--budget", "5");
    await waitUntil("it deploys nothing", async () => account.lambda.functions.size > 0);
    child.kill("SIGINT");
    assert.equal(await ended, 1, readOutput());
    assert.match(await readReport(), /\| left in the account \| nothing \|/);
    assert.deepEqual([listLiveStacks(), account.lambda.functions.size], [[], 0]);
  });

  const refusals: [title: string, words: string[], sentence: RegExp][] = [
    ["a budget that is too small", ["--stage", "suite", "--budget", "0.5"], /which is more than --budget 0.5/],
    ["no budget", ["--stage", "suite"], /--budget takes the most dollars/],
    ["a long name", ["--stage", "a-very-long-name", "--budget", "5"], /--stage takes the name of a new stage/],
    [
      "a stage that exists",
      ["--stage", "taken", "--budget", "5"],
      /the account already has the parameter \/postern\/taken\/keys/,
    ],
  ];
  for (const [title, words, sentence] of refusals)
    it(`refuses ${title}, and creates nothing`, async () => {
      await new SSM(account.actAs("tester")).putParameter({
        Name: "/postern/taken/keys",
        Value: "a",
        Type: "String",
        Overwrite: true,
      });
      const { ended, readOutput } = start(...words);
      assert.equal(await ended, 2);
      assert.match(readOutput(), sentence);
      assert.deepEqual(listLiveStacks(), []);
    });
});
