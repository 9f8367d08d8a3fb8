import { setTimeout as wait } from "node:timers/promises";
import { getFunctionsLogGroup } from "../../infra/aws/log-queries.ts";
import { toSentence } from "../../infra/cli/complaint.ts";
import { formatCount } from "../../infra/cli/progress.ts";
import { listStackResources, readAlarms, readMinutes, sumMetric } from "./aws.ts";
import { resources } from "./budget.ts";
import type { SuiteStage } from "./stage.ts";
import type { Suite } from "./suite.ts";
import { ordinaryRule, type ReviewOptions, type SentReview, suiteRule } from "./traffic.ts";

// The steps of the suite. If a step fails, the failure is reported, and the later steps run nevertheless.

/** Runs a step and records its result; returns false if it failed. */
export const runStep = async (suite: Suite, name: string, act: () => Promise<string>): Promise<boolean> => {
  const start = performance.now();
  const record = (isDone: boolean, sentence: string) => {
    const seconds = (performance.now() - start) / 1000;
    suite.steps.push({ name, isDone, sentence, seconds });
    suite.log(`${isDone ? "done" : "FAILED"} ${name}, ${seconds.toFixed(0)} s: ${sentence}`);
  };
  try {
    suite.signal.throwIfAborted();
    record(true, await act());
    return true;
  } catch (error) {
    record(false, toSentence(error));
    return false;
  }
};

/** Calls `read` with pauses until it returns a defined value, or returns undefined after `maxSeconds`. */
export const poll = async <T>(
  { signal }: Pick<Suite, "signal">,
  { maxSeconds, pauseMilliseconds }: { maxSeconds: number; pauseMilliseconds: number },
  read: () => Promise<T | undefined>,
): Promise<T | undefined> => {
  for (const end = Date.now() + maxSeconds * 1000; ; await wait(pauseMilliseconds, undefined, { signal })) {
    const answer = await read();
    if (answer !== undefined || Date.now() > end) return answer;
  }
};

const getLastLine = (text: string) => text.trim().split("\n").at(-1) ?? "";

export const deploy = (suite: Suite, stage: SuiteStage) =>
  runStep(suite, `deploy ${stage.name}`, async () => getLastLine((await stage.mustRun("deploy")).stderr));

/** Compares the resources of both stacks with the list that the suite printed before it started. */
export const countResources = (suite: Suite) =>
  runStep(suite, "count the resources", async () => {
    const stacks = [suite.http, suite.url].map(({ name }) => listStackResources(suite.clients.cloudformation, name));
    const stackResources = (await Promise.all(stacks)).flat();
    const wrongCounts = resources.flatMap(({ kind, number, type }) => {
      const found = stackResources.filter(({ ResourceType }) => ResourceType === type).length;
      return type === undefined || found === number ? [] : [`${found} ${kind}, announced are ${number}`];
    });
    if (wrongCounts.length > 0) throw new Error(wrongCounts.join("; "));
    return `${formatCount(stackResources.length, "resource")}, as announced`;
  });

/** Sends reviews of all kinds while `act` runs a command. Records them by `name`, and fails if one isn't answered. */
const runWithReviews = async (suite: Suite, stage: SuiteStage, name: string, act: () => Promise<string>) => {
  const stop = stage.traffic.sendEvery(250);
  const result = await act().finally(async () => {
    // Answers of the former version may arrive for some time.
    await wait(2000);
    suite.measured.during.set(`${name} ${stage.name}`, await stop());
  });
  const during = suite.measured.during.get(`${name} ${stage.name}`) ?? [];
  // The overlap is the time from the first answer of the new version to the last answer of another version.
  const versions = during.filter(({ version }) => version !== undefined);
  const latest = versions.at(-1)?.version;
  const first = versions.find(({ version }) => version === latest);
  const last = versions.findLast(({ version }) => version !== latest);
  if (first && last) suite.measured.overlaps.set(`${name} ${stage.name}`, Math.max(0, last.at - first.at));
  const unanswered = during.filter(({ isAnswered }) => !isAnswered);
  if (unanswered.length > 0)
    throw new Error(`${unanswered.length} of ${during.length} reviews failed: ${describe(unanswered[0])}`);
  return `${result}; ${formatCount(during.length, "review")}, all answered`;
};

const describe = ({ status, sentence }: Partial<SentReview> = {}) => `${status} ${sentence}`;

/** Deploys another version of the suite's rule while reviews are sent, without a canary. */
export const deployVersion = (suite: Suite, stage: SuiteStage, version: string) =>
  runStep(suite, `move the alias of ${stage.name} to version ${version}`, () =>
    runWithReviews(suite, stage, `version ${version}`, async () => {
      await stage.writeVersion(version);
      const { stderr } = await stage.mustRun("deploy");
      await requireVersion(suite, stage, version);
      return getLastLine(stderr);
    }),
  );

/** The seconds in which a changed alias must take effect. */
const aliasPatience = 30;

/** Sends a review again and again until its answer is as expected; throws after `aliasPatience`. */
const requireAnswer = async (
  suite: Suite,
  { traffic }: SuiteStage,
  review: ReviewOptions,
  expected: string,
  isExpected: (answer: SentReview) => boolean,
) => {
  let last: SentReview | undefined;
  const found = await poll(suite, { maxSeconds: aliasPatience, pauseMilliseconds: 250 }, async () => {
    last = await traffic.send(review);
    return isExpected(last) || undefined;
  });
  if (!found) throw new Error(`for ${aliasPatience} s, a review is not ${expected}: ${describe(last)}`);
};

const requireVersion = (suite: Suite, stage: SuiteStage, expectedVersion: string) =>
  requireAnswer(
    suite,
    stage,
    { phase: "mutate" },
    `of version ${expectedVersion}`,
    ({ version }) => version === expectedVersion,
  );

export const deployAgain = (suite: Suite, stage: SuiteStage) =>
  runStep(suite, `deploy ${stage.name} again, without a change`, async () => {
    const { stderr } = await stage.mustRun("deploy");
    if (!/nothing to do/.test(stderr)) throw new Error(`it changes something: ${getLastLine(stderr)}`);
    return getLastLine(stderr);
  });

/** Runs `postern status`, which fails if an endpoint or alarm is wrong. Reports its line about the cluster `suite`. */
export const readStatus = (suite: Suite, stage: SuiteStage) =>
  runStep(suite, `status of ${stage.name}`, async () => {
    const { stdout } = await stage.mustRun("status");
    const [, clusterLine = "no cluster"] = /^(cluster suite, .*)$/m.exec(stdout) ?? [];
    return clusterLine;
  });

/** Rolls the suite's rule back while reviews are sent. After the rollback, answers must state `version`. */
export const rollBack = (suite: Suite, stage: SuiteStage, version: string) =>
  runStep(suite, `roll back ${stage.name} to version ${version}`, () =>
    runWithReviews(suite, stage, `rollback to ${version}`, async () => {
      const { stdout } = await stage.mustRun("rollback", suiteRule);
      await requireVersion(suite, stage, version);
      return getLastLine(stdout);
    }),
  );

/** Disarms the suite's rule, so that it must allow everything, and arms the rule again, while reviews are sent. */
export const disarmAndArm = (suite: Suite, stage: SuiteStage) =>
  runStep(suite, `disarm and arm a rule of ${stage.name}`, () =>
    runWithReviews(suite, stage, "disarm", async () => {
      await stage.mustRun("disarm", suiteRule, "--for", "30m");
      await requireAnswer(suite, stage, { action: "deny" }, "allowed", ({ allowed }) => allowed === true);
      await stage.mustRun("arm", suiteRule);
      await requireAnswer(suite, stage, { action: "deny" }, "denied", ({ allowed }) => allowed === false);
      return "it allowed everything, and then decided again";
    }),
  );

/** Gives the stage a new key while reviews are sent. Then the former key must no longer be valid. */
export const rotate = (suite: Suite, stage: SuiteStage) =>
  runStep(suite, `rotate the key of ${stage.name}`, () =>
    runWithReviews(suite, stage, "rotate", async () => {
      const formerKey = readKeySegment(stage);
      const { stdout } = await stage.mustRun("rotate", "--unused-for", "1m", "--patience", "30m");
      const changeUrl = (url: string) => url.replace(readKeySegment(stage), formerKey);
      await requireAnswer(suite, stage, { changeUrl }, "answered 404", ({ status }) => status === 404);
      return getLastLine(stdout);
    }),
  );

/** Returns `{cluster}.{key}` from the URLs in the cluster. */
export const readKeySegment = ({ cluster }: SuiteStage): string =>
  new URL(cluster.listEntries("mutate")[0]?.clientConfig.url ?? "https://missing/").pathname.split("/")[1] ?? "";

/** Deploys a version that fails the suite's reviews as a canary. It must be rolled back automatically. */
export const runBadCanary = (suite: Suite, stage: SuiteStage) =>
  runStep(suite, `canary of ${stage.name} with a bad version`, async () => {
    const { functions } = stage.aws;
    const { version: before } = await functions.readAlias(suiteRule);
    await stage.writeVersion("bad");
    const stop = stage.traffic.sendEvery(100);
    const { code, stdout, stderr } = await stage.run("deploy", "--canary", "50%", "--for", "10m");
    suite.measured.during.set(`canary ${stage.name}`, await stop());
    const { version, weights } = await functions.readAlias(suiteRule);
    if (code === 0) throw new Error(`the bad version went live: ${getLastLine(stderr)}`);
    if (version !== before || Object.keys(weights).length > 0)
      throw new Error(`the alias is at version ${version}, not at ${before} alone: ${getLastLine(stderr)}`);
    const [reason = getLastLine(stderr)] = /it fails \d+% [^\n]*/.exec(stdout + stderr) ?? [];
    return `went back to version ${before}: ${reason}`;
  });

/** Deploys with another version and lower route limits. Records the alias's version before and after the deployment. */
export const lowerLimits = (suite: Suite, stage: SuiteStage, version: string) =>
  runStep(suite, `lower the limits of ${stage.name}`, async () => {
    await stage.writeVersion(version);
    const { functions } = stage.aws;
    const { version: before } = await functions.readAlias(suiteRule);
    await stage.setParams({ requestsPerSecond: 2, requestsAtOnce: 5 });
    const { stderr } = await stage.mustRun("deploy");
    const { version: after } = await functions.readAlias(suiteRule);
    suite.measured.aliasAtStackChange = [before, after];
    return getLastLine(stderr);
  });

/**
 * Sends harmless reviews, which must not trigger an alarm, until the returned function is called. Some have wrong keys
 * or paths.
 */
export const startHarmlessTraffic = (stage: SuiteStage) => {
  let isOver = false;
  const kinds: ReviewOptions[] = [
    {},
    // A key is a signature in base64url, which has 86 characters.
    { changeUrl: (url) => url.replace(/\.[\w-]{86}\//, `.${"x".repeat(86)}/`) },
    { changeUrl: (url) => url.replace(suiteRule, "no-such-rule") },
  ];
  const run = async () => {
    while (!isOver) {
      for (const kind of kinds) await stage.traffic.send(kind);
      await wait(1000);
    }
  };
  const running = run();
  running.catch(() => {});
  return async () => {
    isOver = true;
    await running;
  };
};

/** Waits until CloudWatch has metrics of five minutes with harmless traffic, and then reads which alarms ring. */
export const observeHarmlessTraffic = (suite: Suite, since: number) =>
  runStep(suite, "five minutes with wrong keys and unknown paths", async () => {
    const stages = [suite.http, suite.url];
    const countMinutes = async ({ name }: SuiteStage) =>
      (await readMinutes(suite.clients, buildLatencyQuestion(name, since))).length;
    const finalCounts = await poll(suite, { maxSeconds: 900, pauseMilliseconds: 5000 }, async () => {
      const counts = await Promise.all(stages.map(countMinutes));
      return Math.min(...counts) >= 5 ? counts : undefined;
    });
    const minutes = Math.min(...(finalCounts ?? (await Promise.all(stages.map(countMinutes)))));
    const alarms = (await Promise.all(stages.map(({ name }) => readAlarms(suite.clients, name)))).flat();
    const rang = alarms.flatMap(({ AlarmName = "", StateValue }) => (StateValue === "ALARM" ? [AlarmName] : []));
    suite.measured.harmlessTraffic = { minutes, rang };
    return `${formatCount(alarms.length, "alarm")}, ${rang.length} ringing after ${minutes} minutes`;
  });

const buildLatencyQuestion = (stage: string, since: number) => {
  return { namespace: "Postern", metric: "Latency", dimensions: { Stage: stage }, stat: "SampleCount" as const, since };
};

/** Measures how long it takes until metrics and the log contain a review. */
export const measureDelays = (suite: Suite, stage: SuiteStage) =>
  runStep(suite, `delays of metrics and logs of ${stage.name}`, async () => {
    const { uid, at } = await stage.traffic.send();
    const { measured, clients } = suite;
    const reviews = stage.traffic.sent.filter(({ isAnswered }) => isAnswered).length;
    const isCounted = async () => {
      const counted = await sumMetric(clients, buildLatencyQuestion(stage.name, suite.start));
      return counted >= reviews ? Date.now() - at : undefined;
    };
    const isLogged = async () => {
      const rows = await readLogRows(stage, `filter uid = "${uid}" | fields uid`, at);
      return rows.length > 0 ? Date.now() - at : undefined;
    };
    const [metricDelay, logDelay] = await Promise.all([
      poll(suite, { maxSeconds: 600, pauseMilliseconds: 3000 }, isCounted),
      poll(suite, { maxSeconds: 600, pauseMilliseconds: 3000 }, isLogged),
    ]);
    Object.assign(measured, { metricDelay, logDelay });
    const format = (milliseconds: number | undefined) =>
      milliseconds === undefined ? "not within ten minutes" : `after ${(milliseconds / 1000).toFixed(0)} s at most`;
    return `in metrics ${format(metricDelay)}, in the log ${format(logDelay)}`;
  });

/** Runs a query on the log group of a stage's functions, or on another log group of the stage. */
export const readLogRows = (
  { aws, name }: SuiteStage,
  query: string,
  since: number,
  logGroup = getFunctionsLogGroup(name),
) => aws.logs.query(logGroup, query, new Date(since - 60_000), new Date(Date.now() + 60_000));

/** Sends reviews at the same time, so that each starts an environment, and then a hundred reviews one after another. */
export const sendColdAndWarm = (suite: Suite, stage: SuiteStage) =>
  runStep(suite, `cold and warm reviews of ${stage.name}`, async () => {
    const kinds = [ordinaryRule, suiteRule].flatMap((rule) =>
      (["mutate", "validate"] as const).map((phase) => ({ rule, phase })),
    );
    const sent = await Promise.all(kinds.flatMap((kind) => [kind, kind].map(stage.traffic.send)));
    for (let count = 0; count < 100; count++) sent.push(await stage.traffic.send(kinds[count % kinds.length]));
    sent.push(await stage.traffic.send({ action: "deny" }));
    const unanswered = sent.filter(({ isAnswered }) => !isAnswered);
    if (unanswered.length > 0)
      throw new Error(`${unanswered.length} of ${sent.length} reviews failed: ${describe(unanswered[0])}`);
    const wrongAnswers = sent.filter(({ allowed, action }) => allowed === (action === "deny"));
    if (wrongAnswers.length > 0)
      throw new Error(`${wrongAnswers.length} reviews got a wrong answer: ${describe(wrongAnswers[0])}`);
    return `${formatCount(sent.length, "review")}, all answered as the rules say`;
  });

/** Makes a stage's reviews fail in every way until all its alarms have rung, for about 20 minutes at most. */
export const ringAlarms = (suite: Suite, stage: SuiteStage) =>
  runStep(suite, `make each alarm of ${stage.name} ring`, async () => {
    const { clients, measured } = suite;
    const { aws, traffic, name } = stage;
    const throttled = { FunctionName: aws.functions.getFunctionName(ordinaryRule) };
    const rung = new Set<string>();
    let silent: string[] = [];
    const failOnce = async () => {
      await sendFailures(stage);
      const states = (await readAlarms(clients, name)).map(({ AlarmName = "", StateValue }) => [AlarmName, StateValue]);
      for (const [alarm = "", state] of states) if (state === "ALARM") rung.add(alarm);
      silent = states.flatMap(([alarm = ""]) => (rung.has(alarm) ? [] : [alarm]));
      return silent.length === 0 ? true : undefined;
    };
    // Without concurrency, Lambda throttles every call of a function.
    await clients.lambda.putFunctionConcurrency({ ...throttled, ReservedConcurrentExecutions: 0 });
    try {
      await traffic.send({ action: "hang" }); // The rule blocks its function until Lambda's timeout ends the call.
      await poll(suite, { maxSeconds: 1200, pauseMilliseconds: 3000 }, failOnce);
      measured.rang.push(...rung);
      measured.silent.push(...silent);
    } finally {
      await clients.lambda.deleteFunctionConcurrency(throttled);
    }
    if (silent.length > 0) throw new Error(`these alarms did not ring: ${silent.join(", ")}`);
    return `${formatCount(rung.size, "alarm")} rang`;
  });

/** Sends reviews that fail in each way. Lambda throttles ordinaryRule, because the caller set its concurrency to 0. */
const sendFailures = async ({ traffic, endpointType }: SuiteStage) => {
  // The review `allow` waits for a start of the function, because `crash` ended its process.
  for (const action of ["fail", "crash", "allow", "slow"] as const) await traffic.send({ action });
  // An HTTP API gets more reviews at once than its routes let through. A function URL has no such limit: 2 are enough.
  const count = endpointType === "http" ? 20 : 2;
  await Promise.all(Array.from({ length: count }, () => traffic.send({ rule: ordinaryRule })));
};
