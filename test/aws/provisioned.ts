import { AwsError } from "./aws-service.ts";

// Provisioned concurrency in the stand-in for Lambda: environments that are started before a call needs them.

/** The provisioned concurrency of one version or alias. */
export interface ProvisionedConcurrency {
  count: number;
  /** The time of the request, in milliseconds since 1970. */
  since: number;
  /** The reason why the start of the environments will fail; undefined if it will succeed. */
  failure: string | undefined;
  running: number;
}

interface ProvisionedFunction {
  versions: Map<string, unknown>;
  aliases: Map<string, { version: string; weights: Record<string, number> }>;
  provisioned: Map<string, ProvisionedConcurrency>;
  reserved?: number | undefined;
}

/** The parts of the stand-in for Lambda that provisioned concurrency needs. */
interface ProvisioningHost {
  getFunction(name: string): ProvisionedFunction;
  buildArn(name: string): string;
  /** Returns the account's concurrency that no function but `ignored` reserves or provisions. */
  computeUnreserved(ignored: ProvisionedFunction): number;
  /** Returns how many milliseconds environments take to start, and why they fail if they fail. */
  readWarmingSettings(): { warmingMilliseconds: number; warmFailure: string | undefined };
}

type Json = Record<string, unknown>;

const createInvalid = (message: string) => new AwsError(400, "InvalidParameterValueException", message);

export const sumProvisioned = ({ provisioned }: ProvisionedFunction) =>
  [...provisioned.values()].reduce((sum, { count }) => sum + count, 0);

export const isWarm = ({ since, failure }: ProvisionedConcurrency, warmingMilliseconds: number) =>
  failure === undefined && Date.now() >= since + warmingMilliseconds;

/** Returns the actions of Lambda's API for provisioned concurrency. */
export const createProvisionedActions = ({
  getFunction,
  buildArn,
  computeUnreserved,
  readWarmingSettings,
}: ProvisioningHost) => {
  const describe = ({ count, since, failure }: ProvisionedConcurrency): Json => {
    const { warmingMilliseconds } = readWarmingSettings();
    const finalStatus = failure === undefined ? "READY" : "FAILED";
    const Status = Date.now() < since + warmingMilliseconds ? "IN_PROGRESS" : finalStatus;
    const ready = Status === "READY" ? count : 0;
    return {
      RequestedProvisionedConcurrentExecutions: count,
      AllocatedProvisionedConcurrentExecutions: ready,
      AvailableProvisionedConcurrentExecutions: ready,
      Status,
      ...(Status === "FAILED" && { StatusReason: failure }),
      LastModified: new Date(since).toISOString().replace("Z", "+0000"),
    };
  };
  /** Throws if a function that already has `present` provisioned environments can't have `count` more. */
  const requireRoom = (fn: ProvisionedFunction, present: number, count: number) => {
    if (fn.reserved !== undefined && present + count > fn.reserved)
      throw createInvalid(
        "Requested Provisioned Concurrency should not be greater than the reservedConcurrentExecution for function",
      );
    if (fn.reserved === undefined && computeUnreserved(fn) - present - count < 100)
      throw createInvalid(
        "Specified ConcurrentExecutions for function decreases account's UnreservedConcurrentExecution below its minimum value of [100].",
      );
  };
  return {
    PutProvisionedConcurrencyConfig: (name: string, input: Json, query: URLSearchParams) => {
      const fn = getFunction(name);
      const qualifier = query.get("Qualifier") ?? "";
      const count = Number(input.ProvisionedConcurrentExecutions);
      if (!Number.isInteger(count) || count < 1)
        throw createInvalid("ProvisionedConcurrentExecutions must be a whole number from 1");
      if (qualifier === "$LATEST" || qualifier === "")
        throw createInvalid("Provisioned Concurrency Configs cannot be applied to unpublished function versions.");
      const alias = fn.aliases.get(qualifier);
      if (!alias && !fn.versions.has(qualifier))
        throw new AwsError(404, "ResourceNotFoundException", `Function not found: ${buildArn(name)}:${qualifier}`);
      if (alias && Object.keys(alias.weights).length > 0)
        throw createInvalid("Invalid alias configuration for Provisioned Concurrency");
      if (alias && fn.provisioned.has(alias.version))
        throw new AwsError(
          409,
          "ResourceConflictException",
          "Alias can't be used for Provisioned Concurrency configuration on an already Provisioned version",
        );
      requireRoom(fn, sumProvisioned(fn) - (fn.provisioned.get(qualifier)?.count ?? 0), count);
      const provisioned = { count, since: Date.now(), failure: readWarmingSettings().warmFailure, running: 0 };
      fn.provisioned.set(qualifier, provisioned);
      return describe(provisioned);
    },
    ListProvisionedConcurrencyConfigs: (name: string) => ({
      ProvisionedConcurrencyConfigs: [...getFunction(name).provisioned].map(([qualifier, provisioned]) => {
        return { FunctionArn: `${buildArn(name)}:${qualifier}`, ...describe(provisioned) };
      }),
    }),
    DeleteProvisionedConcurrencyConfig: (name: string, _: Json, query: URLSearchParams) => {
      if (!getFunction(name).provisioned.delete(query.get("Qualifier") ?? ""))
        throw new AwsError(404, "ResourceNotFoundException", "No Provisioned Concurrency Config found");
      return undefined;
    },
  };
};
