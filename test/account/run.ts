import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Complaint, toSentence } from "../../infra/cli/complaint.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { formatReport, isGood } from "./account-report.ts";
import { listResources, openClients } from "./aws.ts";
import { describePlan, limits, sumCosts } from "./budget.ts";
import { checkFacts } from "./facts/fact.ts";
import { facts } from "./facts/facts.ts";
import { type LatencyRow, readLatencies } from "./latency.ts";
import { openSuiteStage, type SuiteStage } from "./stage.ts";
import {
  countResources,
  deploy,
  deployAgain,
  deployVersion,
  disarmAndArm,
  lowerLimits,
  measureDelays,
  observeHarmlessTraffic,
  readStatus,
  ringAlarms,
  rollBack,
  rotate,
  runBadCanary,
  runStep,
  sendColdAndWarm,
  startHarmlessTraffic,
} from "./steps.ts";
import { notSeen, type Suite } from "./suite.ts";

// `npm run test:account -- --stage NAME --region R --budget 5` deploys two stages to a real account, checks the facts
// about AWS on which Postern relies, destroys the stages, and writes account-report.md.

interface Arguments {
  stage: string;
  region: string;
  /** Dollars; undefined if the suite only destroys the stages of an earlier run. */
  budget: number | undefined;
}

const readArguments = (): Arguments => {
  const text = { type: "string" } as const;
  const options = { stage: text, region: text, budget: text, destroy: { type: "boolean" } } as const;
  const { values } = parseArgs({ options });
  const { stage = "", region = "", budget = "", destroy = false } = values;
  // The second stage is named NAME-url. CloudFormation shortens the names of its roles and buckets if a stage's name
  // has more than 16 characters.
  if (!/^[a-z][a-z0-9-]{0,11}$/.test(stage))
    throw new Complaint(
      "--stage takes a name for a new stage, such as try: it must have at most 12 lower-case letters, digits and hyphens",
    );
  if (!/^[a-z]{2,}(-[a-z]+)+-\d$/.test(region)) throw new Complaint("--region takes a region, for instance eu-west-1");
  if (destroy) return { stage, region, budget: undefined };
  if (!(Number(budget) > 0)) throw new Complaint("--budget takes the most dollars that a run may cost, for instance 5");
  return { stage, region, budget: Number(budget) };
};

const printLine = (line: string) => void process.stdout.write(`${line}\n`);

const deployBoth = async (suite: Suite): Promise<boolean> => {
  const stages = [suite.http, suite.url];
  await suite.http.setParams({ slowMilliseconds: 1500, logRetentionInDays: 1 });
  await suite.url.setParams({ slowMilliseconds: 1500, logRetentionInDays: 1, endpoint: "url" });
  const deployed = await Promise.all(stages.map((stage) => deploy(suite, stage)));
  return deployed.every(Boolean);
};

/**
 * Runs the steps of the stage with the HTTP API. From `trafficStart` on, both stages get harmless traffic, which must
 * trigger no alarm. The traffic ends when the alarms have been read, because the next steps make alarms ring.
 */
const exerciseHttp = async (suite: Suite, endHarmlessTraffic: () => Promise<unknown>, trafficStart: number) => {
  const { http } = suite;
  await deployAgain(suite, http);
  await readStatus(suite, http);
  await deployVersion(suite, http, "two");
  await observeHarmlessTraffic(suite, trafficStart);
  await endHarmlessTraffic().catch(() => {});
  await runBadCanary(suite, http);
  await lowerLimits(suite, http, "two");
  await ringAlarms(suite, http);
};

/** Runs the steps of the stage with function URLs. */
const exerciseUrl = async (suite: Suite) => {
  const { url } = suite;
  await deployVersion(suite, url, "two");
  await rollBack(suite, url, "one");
  await url.writeVersion("one");
  await disarmAndArm(suite, url);
  await rotate(suite, url);
  await readStatus(suite, url);
  await ringAlarms(suite, url);
};

/** Runs all steps and checks all facts. */
const exercise = async (suite: Suite) => {
  if (await deployBoth(suite)) {
    const { http, url } = suite;
    await countResources(suite);
    for (const stage of [http, url]) await sendColdAndWarm(suite, stage);
    await Promise.all([measureDelays(suite, http), checkFacts(suite, facts, "deployed")]);
    // Harmless traffic must trigger no alarm. exerciseHttp checks that by the alarms and metrics since `trafficStart`.
    const trafficStart = Date.now();
    const stops = [http, url].map(startHarmlessTraffic);
    const endHarmlessTraffic = () => Promise.all(stops.map((stop) => stop()));
    // A new account runs at most ten environments at once. There the stages are exercised one after the other.
    const { AccountLimit } = await suite.clients.lambda.getAccountSettings({});
    if ((AccountLimit?.ConcurrentExecutions ?? 0) < 100) {
      await exerciseHttp(suite, endHarmlessTraffic, trafficStart);
      await exerciseUrl(suite);
    } else await Promise.all([exerciseHttp(suite, endHarmlessTraffic, trafficStart), exerciseUrl(suite)]);
    await checkFacts(suite, facts, "afterwards");
  }
  for (const { id } of facts)
    if (!suite.facts.has(id)) suite.facts.set(id, notSeen("the stages could not be deployed"));
};

/** Destroys a stage. Tries again while the stage is locked, for instance by a command that was stopped. */
const destroy = async (stage: SuiteStage, ...words: string[]): Promise<string> => {
  for (let attempt = 1; ; attempt++) {
    const { code, stdout, stderr } = await stage.run("destroy", "--yes", "--with-data", ...words);
    if (code === 0) return stdout.trim();
    if (/there is no stage/.test(stderr)) return "there was nothing to destroy";
    if (attempt === 20 || !/is locked|CloudFormation is changing it/.test(stderr)) throw new Error(stderr.trim());
    await wait(15_000);
  }
};

/**
 * Returns the minutes that a run may take, so that the stages are destroyed before the credentials expire. Temporary
 * credentials in environment variables can't be renewed.
 */
const computeMinutes = (env: NodeJS.ProcessEnv): number => {
  if (env.AWS_SESSION_TOKEN === undefined) return limits.minutes;
  const end = Date.parse(env.AWS_CREDENTIAL_EXPIRATION ?? "");
  if (Number.isNaN(end))
    throw new Complaint(
      "AWS_SESSION_TOKEN is set, and AWS_CREDENTIAL_EXPIRATION must say when these credentials end, for instance 2026-11-30T12:00:00Z: the stages could not be destroyed after that",
    );
  const minutesLeft = Math.floor((end - Date.now()) / 60_000) - limits.destroyMinutes;
  if (minutesLeft >= limits.leastMinutes) return Math.min(minutesLeft, limits.minutes);
  throw new Complaint(
    `the credentials end at ${env.AWS_CREDENTIAL_EXPIRATION}, and a run needs ${limits.leastMinutes} minutes and ${limits.destroyMinutes} for the destruction: take credentials that last longer, or an AWS profile, whose credentials are renewed`,
  );
};

const run = async ({ stage: name, region, budget }: Arguments): Promise<number> => {
  process.env.AWS_REGION = region;
  const stages = [name, `${name}-url`, `${name}-facts`];
  const minutes = budget === undefined ? limits.minutes : computeMinutes(process.env);
  const clients = openClients();
  if (budget !== undefined) {
    printLine(describePlan(name, region));
    if (minutes < limits.minutes)
      printLine(`The credentials end before that, so the run stops after ${minutes} minutes and destroys everything.`);
    if (sumCosts() > budget)
      throw new Complaint(`a run can cost $${sumCosts().toFixed(2)}, which is more than --budget ${budget}`);
    const [first] = await listResources(clients, stages);
    if (first !== undefined)
      throw new Complaint(
        `the account already has the ${first}; take another --stage, or give --destroy instead of --budget if an earlier run left it`,
      );
    printLine(`If this process is killed: npm run test:account -- --stage ${name} --region ${region} --destroy\n`);
  }

  const stop = new AbortController();
  // If the terminal is closed, output fails. The run must not end by that, because it still has to destroy the stages.
  process.stdout.on("error", () => {});
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const)
    process.on(signal, () => {
      printLine("stopping; the stages are destroyed first");
      stop.abort(new Complaint("the run was stopped", 1));
    });
  const signal = AbortSignal.any([stop.signal, AbortSignal.timeout(minutes * 60_000)]);
  const folder = await mkdtemp(join(tmpdir(), "postern-suite-"));
  const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
  const options = { certificate, signal, budget: { left: limits.reviews } };
  const [http, url] = await Promise.all([
    openSuiteStage(name, "http", options),
    openSuiteStage(`${name}-url`, "url", options),
  ]);
  const suite: Suite = {
    name,
    region,
    http,
    url,
    clients,
    signal,
    start: Date.now(),
    log: printLine,
    measured: { during: new Map(), overlaps: new Map(), rang: [], silent: [] },
    steps: [],
    facts: new Map(),
  };
  const end = { latencies: [] as LatencyRow[], leftovers: undefined as string[] | undefined };
  try {
    if (budget !== undefined) {
      await exercise(suite);
      end.latencies = await readLatencies(suite).catch(() => []);
    }
  } finally {
    const unsignalled = { ...suite, signal: new AbortController().signal };
    // The stages of an earlier run have the cluster "suite", which no longer exists.
    const words = budget === undefined ? ["--forget", "suite"] : [];
    await Promise.all(
      [http, url].map((stage) => runStep(unsignalled, `destroy ${stage.name}`, () => destroy(stage, ...words))),
    );
    end.leftovers = await listResources(clients, stages).catch((error) => {
      printLine(`what is left can't be listed: ${toSentence(error)}`);
      return undefined;
    });
    await Promise.all([http.close(), url.close(), rm(folder, { recursive: true })]);
  }
  for (const line of end.leftovers ?? []) printLine(`LEFT: ${line}`);
  if (budget !== undefined) {
    await writeFile("account-report.md", await formatReport(suite, end));
    printLine("account-report.md has the report");
  }
  return isGood(suite, end) ? 0 : 1;
};

try {
  process.exitCode = await run(readArguments());
} catch (error) {
  process.stderr.write(`${error instanceof Complaint ? error.message : (error as Error).stack}\n`);
  process.exitCode = error instanceof Complaint ? error.exitCode : 3;
}
