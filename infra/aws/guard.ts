import type { AwsClient, SendToAws } from "./client.ts";

/** Is called before each change in AWS or in a cluster, and checks that this command still has the stage's lock. */
export interface StageLockGuard {
  /** Throws if this command has lost the stage's lock. Does nothing if the command has not taken a lock. */
  check(): Promise<void>;
  /** Is aborted when the lock is lost. It ends child processes, which send their own requests. */
  signal?: AbortSignal | undefined;
}

/** Makes an AWS client check the stage's lock before each request that changes something, also before each retry. */
export const guardAwsClient = <T extends AwsClient>(client: T, guard: StageLockGuard): T => {
  const guardRequests =
    (next: SendToAws, { commandName = "" }: { commandName?: string }): SendToAws =>
    async (request) => {
      if (!/^(Get|List|Describe|Head|Invoke)/.test(commandName)) await guard.check();
      return next(request);
    };
  client.middlewareStack.add(guardRequests, { step: "finalizeRequest", priority: "low", name: "postern-guard" });
  return client;
};
