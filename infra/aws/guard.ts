/** Decides whether AWS and clusters may still be changed. Calls that only read don't ask it. */
export interface Guard {
  /** Throws where nothing may be changed any more. It lets everything through until a lock is taken. */
  check(): Promise<void>;
  /** Is aborted as soon as that is known without a call, for programs that make calls of their own. */
  signal?: AbortSignal | undefined;
}

/** Any client of the AWS SDK; how its middleware is typed depends on its service. */
interface Client {
  middlewareStack: { add(middleware: unknown, options: unknown): void };
}
type Send = (request: unknown) => Promise<unknown>;

/** Makes a client ask the guard before each request that changes something, a repeated one included. */
export const guardClient = <T extends Client>(client: T, guard: Guard): T => {
  const middleware =
    (next: Send, { commandName = "" }: { commandName?: string }): Send =>
    async (request) => {
      if (!/^(Get|List|Describe|Head|Invoke)/.test(commandName)) await guard.check();
      return next(request);
    };
  client.middlewareStack.add(middleware, { step: "finalizeRequest", priority: "low", name: "postern-guard" });
  return client;
};
