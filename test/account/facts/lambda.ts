import { createHash, randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { waitUntilFunctionUpdatedV2 } from "@aws-sdk/client-lambda";
import { createFallbackForErrorNamed } from "../../../infra/aws/errors.ts";
import { poll } from "../steps.ts";
import { differs, notSeen, notWithinQuotas, type Observation, type Suite, seen } from "../suite.ts";
import { ordinaryRule, suiteRule } from "../traffic.ts";
import { type Fact, observe, observeRefusal } from "./fact.ts";

// Checks facts about Lambda's API: versions, aliases, concurrency, invocations and permissions.

/** Returns the function of the suite's rule behind the HTTP API. */
const selectFunction = ({ http }: Suite) => ({ FunctionName: http.aws.functions.getFunctionName(suiteRule) });

/** Reads the alias `live` of the function of the suite's rule behind the HTTP API. */
const readLive = ({ http }: Suite) => http.aws.functions.readAlias(suiteRule);

/** Publishes a version, calls `update`, and publishes again; returns the numbers of both versions. */
const publishTwice = async (suite: Suite, update: () => Promise<unknown> = async () => {}) => {
  const { lambda } = suite.clients;
  const name = selectFunction(suite);
  const first = await lambda.publishVersion(name);
  await update();
  await waitUntilFunctionUpdatedV2({ client: lambda, maxWaitTime: 60, minDelay: 1, maxDelay: 3 }, name);
  const second = await lambda.publishVersion(name);
  return [Number(first.Version), Number(second.Version)] as const;
};

/** Calls `act` with an alias of two versions, then deletes the alias. Does nothing if the function has one version. */
const withWeightedAlias = async <T>(suite: Suite, act: (Name: string) => Promise<T>): Promise<T | undefined> => {
  const { lambda } = suite.clients;
  const name = selectFunction(suite);
  const { Versions = [] } = await lambda.listVersionsByFunction(name);
  const [first, second] = Versions.map(({ Version = "" }) => Version).filter((version) => version !== "$LATEST");
  if (first === undefined || second === undefined) return undefined;
  const RoutingConfig = { AdditionalVersionWeights: { [second]: 0.5 } };
  await lambda.createAlias({ ...name, Name: "suite", FunctionVersion: first, RoutingConfig });
  return act("suite").finally(async () => {
    await lambda.deleteProvisionedConcurrencyConfig({ ...name, Qualifier: "suite" }).catch(ignoreMissing);
    await lambda.deleteAlias({ ...name, Name: "suite" });
  });
};

const ignoreMissing = createFallbackForErrorNamed("ResourceNotFoundException", {});

const oneVersion = notSeen("the function has only one version");

const versionFacts: Fact[] = [
  {
    id: "code-hash",
    when: "deployed",
    check: async (suite) => {
      const { CodeSha256 } = await suite.clients.lambda.getFunctionConfiguration(selectFunction(suite));
      const code = await readFile(join(suite.http.folder, "dist", `${suiteRule}.zip`));
      return observe(CodeSha256 === createHash("sha256").update(code).digest("base64"), String(CodeSha256));
    },
  },
  {
    id: "publish-wrong-hash",
    when: "deployed",
    check: (suite) => {
      const CodeSha256 = createHash("sha256").digest("base64");
      return observeRefusal(
        () => suite.clients.lambda.publishVersion({ ...selectFunction(suite), CodeSha256 }),
        "InvalidParameterValueException",
      );
    },
  },
  {
    id: "publish-unchanged",
    when: "deployed",
    check: async (suite) => {
      const [first, second] = await publishTwice(suite);
      return observe(first === second, `version ${second} after version ${first}`);
    },
  },
  {
    id: "publish-after-update",
    when: "deployed",
    check: async (suite) => {
      const { lambda } = suite.clients;
      const { Description } = await lambda.getFunctionConfiguration(selectFunction(suite));
      const update = () => lambda.updateFunctionConfiguration({ ...selectFunction(suite), Description });
      const [first, second] = await publishTwice(suite, update);
      return observe(first === second, `version ${second} after version ${first}`);
    },
  },
  {
    id: "publish-changed-description",
    when: "deployed",
    check: async (suite) => {
      const { lambda } = suite.clients;
      const { Description } = await lambda.getFunctionConfiguration(selectFunction(suite));
      const describe = (text = "") =>
        lambda.updateFunctionConfiguration({ ...selectFunction(suite), Description: text });
      const [first, second] = await publishTwice(suite, () => describe("as the suite asked"));
      await describe(Description);
      await waitUntilFunctionUpdatedV2({ client: lambda, maxWaitTime: 60 }, selectFunction(suite));
      return observe(first < second, `version ${second} after version ${first}`);
    },
  },
  {
    id: "update-stale-revision",
    when: "deployed",
    check: (suite) => {
      const stale = { ...selectFunction(suite), RevisionId: randomUUID() };
      return observeRefusal(
        () => suite.clients.lambda.updateFunctionConfiguration(stale),
        "PreconditionFailedException",
      );
    },
  },
  {
    id: "version-in-use",
    when: "deployed",
    check: async (suite) => {
      const { version: Qualifier } = await readLive(suite);
      return observeRefusal(
        () => suite.clients.lambda.deleteFunction({ ...selectFunction(suite), Qualifier }),
        "ResourceConflictException",
      );
    },
  },
];

const aliasFacts: Fact[] = [
  {
    id: "alias-stale-revision",
    when: "deployed",
    check: async (suite) => {
      const { version } = await readLive(suite);
      const change = { ...selectFunction(suite), Name: "live", FunctionVersion: version, RevisionId: randomUUID() };
      return observeRefusal(() => suite.clients.lambda.updateAlias(change), "PreconditionFailedException");
    },
  },
  {
    id: "alias-latest",
    when: "deployed",
    check: async (suite) => {
      const { version: FunctionVersion } = await readLive(suite);
      const RoutingConfig = { AdditionalVersionWeights: { $LATEST: 0.1 } };
      const alias = { ...selectFunction(suite), Name: "suite-latest", FunctionVersion, RoutingConfig };
      return observeRefusal(
        () => suite.clients.lambda.createAlias(alias),
        "InvalidParameterValueException",
        "ValidationException",
      );
    },
  },
  {
    id: "alias-weights-cleared",
    when: "deployed",
    check: async (suite) => {
      const found = await withWeightedAlias(suite, async (Name) => {
        const RoutingConfig = { AdditionalVersionWeights: {} };
        await suite.clients.lambda.updateAlias({ ...selectFunction(suite), Name, RoutingConfig });
        return suite.clients.lambda.getAlias({ ...selectFunction(suite), Name });
      });
      if (found === undefined) return oneVersion;
      const weights = found.RoutingConfig?.AdditionalVersionWeights ?? {};
      return observe(Object.keys(weights).length === 0, `the weights are ${JSON.stringify(weights)}`);
    },
  },
  {
    id: "alias-moves-under-load",
    when: "afterwards",
    check: async ({ measured }) => {
      const moves = [...measured.overlaps].filter(([name]) => /^(version|rollback)/.test(name));
      if (moves.length === 0) return notSeen("no alias moved under reviews");
      const sentences = moves.map(([name, milliseconds]) => `${name}: ${milliseconds} ms`);
      return observe(
        moves.every(([, milliseconds]) => milliseconds < 10_000),
        sentences.join(", "),
      );
    },
  },
  {
    id: "moves-lose-no-review",
    when: "afterwards",
    check: async ({ measured }) => {
      const moves = [...measured.during].filter(([name]) => !name.startsWith("canary"));
      const reviews = moves.flatMap(([, all]) => all);
      if (reviews.length === 0) return notSeen("no command ran under reviews");
      const unanswered = reviews.filter(({ isAnswered }) => !isAnswered);
      return observe(unanswered.length === 0, `${unanswered.length} of ${reviews.length} reviews failed`);
    },
  },
  {
    id: "alias-weights-share",
    when: "afterwards",
    check: async ({ measured, http }) => {
      const during = measured.during.get(`canary ${http.name}`) ?? [];
      // Only the bad version fails, so the first and the last failure enclose the time of the canary.
      const failures = during.filter(({ isAnswered }) => !isAnswered);
      const [first, last] = [failures[0], failures.at(-1)];
      if (failures.length < 10 || !first || !last)
        return notSeen(`only ${failures.length} reviews met the new version`);
      const between = during.filter(({ rule, at }) => rule === suiteRule && at >= first.at && at <= last.at);
      const fraction = failures.length / between.length;
      const percentage = Math.round(fraction * 100);
      return observe(fraction > 0.3 && fraction < 0.7, `${percentage}% of ${between.length} reviews, of 50%`);
    },
  },
];

const readFreeConcurrency = async ({ clients }: Suite): Promise<number> =>
  (await clients.lambda.getAccountSettings({})).AccountLimit?.UnreservedConcurrentExecutions ?? 0;

/** Checks a fact that needs concurrency to reserve. A new account has a concurrency of ten, and can't reserve any. */
const checkIfReservable = async (suite: Suite, check: (free: number) => Promise<Observation>) => {
  const free = await readFreeConcurrency(suite);
  return free > 100 ? check(free) : notWithinQuotas(`the account may reserve nothing: ${free} environments are free`);
};

const concurrencyFacts: Fact[] = [
  {
    id: "account-settings",
    when: "deployed",
    check: async ({ clients }) => {
      const { AccountLimit = {} } = await clients.lambda.getAccountSettings({});
      const { ConcurrentExecutions, UnreservedConcurrentExecutions, TotalCodeSize } = AccountLimit;
      const quotas = [ConcurrentExecutions, UnreservedConcurrentExecutions, TotalCodeSize];
      return observe(
        quotas.every((number) => typeof number === "number"),
        `${ConcurrentExecutions} environments, ${UnreservedConcurrentExecutions} of them not reserved, ${TotalCodeSize} bytes of code`,
      );
    },
  },
  {
    id: "reserved-leaves-100",
    when: "deployed",
    check: (suite) =>
      checkIfReservable(suite, async (free) => {
        const { lambda } = suite.clients;
        // At least 100 environments must stay free.
        const wanted = { ...selectFunction(suite), ReservedConcurrentExecutions: free - 99 };
        return observeRefusal(() => lambda.putFunctionConcurrency(wanted), "InvalidParameterValueException").finally(
          () => lambda.deleteFunctionConcurrency(selectFunction(suite)),
        );
      }),
  },
  {
    id: "provisioned-weighted-alias",
    when: "deployed",
    check: (suite) =>
      checkIfReservable(suite, async () => {
        const { lambda } = suite.clients;
        const found = await withWeightedAlias(suite, async (Name) => {
          const which = { ...selectFunction(suite), Qualifier: Name };
          const provision = () =>
            lambda.putProvisionedConcurrencyConfig({ ...which, ProvisionedConcurrentExecutions: 1 });
          const refused = await observeRefusal(
            provision,
            "InvalidParameterValueException",
            "ResourceConflictException",
          );
          if (refused.outcome === "differs") return refused;
          // The weights must be the reason of the refusal: without weights, Lambda accepts the call.
          const RoutingConfig = { AdditionalVersionWeights: {} };
          await lambda.updateAlias({ ...selectFunction(suite), Name, RoutingConfig });
          await provision();
          return seen(`${refused.sentence} with weights, accepted without`);
        });
        return found ?? oneVersion;
      }),
  },
  {
    id: "provisioned-version",
    when: "deployed",
    check: (suite) => checkIfReservable(suite, () => checkProvisionedVersion(suite)),
  },
  {
    id: "reserved-zero",
    when: "afterwards",
    check: async ({ http, url }) => {
      const statuses = [http, url].map(({ traffic }) => {
        const throttled = traffic.sent.filter(
          ({ rule, status }) => rule === ordinaryRule && [429, 503].includes(status),
        );
        return new Set(throttled.map(({ status }) => status));
      });
      const [first = new Set(), second = new Set()] = statuses;
      const sentence = `the HTTP API answers ${[...first].join(", ") || "nothing"}, the function URL ${[...second].join(", ") || "nothing"}`;
      return observe(first.has(503) && second.has(429), sentence);
    },
  },
];

/** Provisions an environment for the live version, and checks that the environment reports how it was started. */
const checkProvisionedVersion = async (suite: Suite): Promise<Observation> => {
  const { lambda } = suite.clients;
  const { version } = await readLive(suite);
  const which = { ...selectFunction(suite), Qualifier: version };
  const start = Date.now();
  await lambda.putProvisionedConcurrencyConfig({ ...which, ProvisionedConcurrentExecutions: 1 });
  try {
    const ended = await poll(suite, { maxSeconds: 600, pauseMilliseconds: 2000 }, async () => {
      const all = await suite.http.aws.functions.listWarmVersions(suiteRule);
      const status = all.find((warm) => warm.version === version)?.status;
      return status === "IN_PROGRESS" ? undefined : status;
    });
    const seconds = Math.round((Date.now() - start) / 1000);
    const { Payload } = await invoke(suite, "initialization", version);
    const type = /on-demand|provisioned-concurrency/.exec(Payload?.transformToString() ?? "")?.[0];
    const isWarm = ended === "READY" && type === "provisioned-concurrency";
    return observe(isWarm, `${ended ?? "not ready"} after ${seconds} s, and then the initialization was ${type}`);
  } finally {
    await lambda.deleteProvisionedConcurrencyConfig(which);
  }
};

const invocationFacts: Fact[] = [
  {
    id: "executed-version",
    when: "deployed",
    check: async (suite) => {
      const { ExecutedVersion } = await invoke(suite);
      const { version } = await readLive(suite);
      return observe(ExecutedVersion === version, `version ${ExecutedVersion}, and the alias points at ${version}`);
    },
  },
  {
    id: "log-tail",
    when: "deployed",
    check: async (suite) => {
      const { LogResult = "" } = await invoke(suite);
      const text = Buffer.from(LogResult, "base64").toString();
      return observe(text.includes(`"Rule":"${suiteRule}"`), `${text.length} characters`);
    },
  },
  {
    id: "function-error",
    when: "deployed",
    check: async (suite) => {
      const { FunctionError, Payload } = await invoke(suite, "crash");
      const { errorType } = JSON.parse(Payload?.transformToString() || "{}");
      return observe(FunctionError === "Unhandled", `${FunctionError}, ${errorType}`);
    },
  },
];

const invoke = async (suite: Suite, action?: string, Qualifier = "live") =>
  suite.clients.lambda.invoke({ ...selectFunction(suite), Qualifier, LogType: "Tail", Payload: buildPayload(action) });

/** Returns an event that lets a function review an object without an HTTP request. */
export const buildPayload = (action?: string): string => {
  const annotations = action === undefined ? {} : { "postern.dev/act": action };
  const kind = { group: "", version: "v1", kind: "ConfigMap" };
  const resource = { group: "", version: "v1", resource: "configmaps" };
  const object = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "suite-direct", annotations } };
  const request = { uid: randomUUID(), kind, resource, operation: "CREATE", userInfo: { username: "suite" }, object };
  const review = { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", request };
  return JSON.stringify({ phase: "validate", review });
};

/** The seconds in which a changed permission must take effect. */
const patience = 120;

const permissionFacts: Fact[] = [
  {
    id: "url-needs-both-permissions",
    when: "deployed",
    check: async (suite) => {
      const { lambda } = suite.clients;
      const { aws, traffic } = suite.url;
      const which = { FunctionName: aws.functions.getFunctionName(ordinaryRule), Qualifier: "live" };
      const { Policy = "{}" } = await lambda.getPolicy(which);
      const statements: { Sid: string; Action: string }[] = JSON.parse(Policy).Statement;
      const StatementId = statements.find(({ Action }) => Action === "lambda:InvokeFunction")?.Sid;
      if (StatementId === undefined) return differs("the function has no permission for lambda:InvokeFunction");
      const waitForStatus = (wanted: number) =>
        poll(suite, { maxSeconds: patience, pauseMilliseconds: 500 }, async () => {
          const { status } = await traffic.send({ rule: ordinaryRule });
          return status === wanted ? Date.now() : undefined;
        });
      const start = Date.now();
      await lambda.removePermission({ ...which, StatementId });
      const refusedAt = await waitForStatus(403);
      const restored = Date.now();
      const Action = "lambda:InvokeFunction";
      await lambda.addPermission({ ...which, StatementId, Action, Principal: "*", InvokedViaFunctionUrl: true });
      const allowedAt = await waitForStatus(200);
      if (refusedAt === undefined) return differs(`without lambda:InvokeFunction it still answers after ${patience} s`);
      if (allowedAt === undefined) return differs(`with both permissions it doesn't answer after ${patience} s`);
      return seen(`403 after ${refusedAt - start} ms without, 200 after ${allowedAt - restored} ms with it`);
    },
  },
];

export const lambdaFacts: Fact[] = [
  ...versionFacts,
  ...aliasFacts,
  ...concurrencyFacts,
  ...invocationFacts,
  ...permissionFacts,
];
