/** Checks before each change of AWS or a cluster that this command still has the stage's lock. Reads don't ask it. */
export interface StageLockGuard {
  /**
   * Throws if this command has lost the stage's lock and may change nothing more. Never throws before a lock is
   * taken.
   */
  check(): Promise<void>;
  /** Aborted when the lock is known to be lost; for child processes that send their own requests. */
  signal?: AbortSignal | undefined;
}

/** Any client of the AWS SDK; how its middleware is typed depends on its service. */
interface Client {
  middlewareStack: { add(middleware: unknown, options: unknown): void };
}
type Send = (request: unknown) => Promise<unknown>;

/** Makes an AWS client check the stage's lock (`guard`) before each request or retry that changes something. */
export const guardAwsClient = <T extends Client>(client: T, guard: StageLockGuard): T => {
  const guardRequests =
    (next: Send, { commandName = "" }: { commandName?: string }): Send =>
    async (request) => {
      if (!/^(Get|List|Describe|Head|Invoke)/.test(commandName)) await guard.check();
      return next(request);
    };
  client.middlewareStack.add(guardRequests, { step: "finalizeRequest", priority: "low", name: "postern-guard" });
  return client;
};
