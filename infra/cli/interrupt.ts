/**
 * Calls `handle` at the first signal that interrupts the command. A later signal ends the process at once. Returns a
 * function that restores the usual effect of signals.
 */
export const handleInterrupt = (handle: () => void): (() => void) => {
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
  let firstSignalAt: number | undefined;
  const handleSignal = () => {
    if (firstSignalAt === undefined) {
      firstSignalAt = performance.now();
      handle();
    } else if (performance.now() - firstSignalAt > 1000) process.exit(130); // one Ctrl-C may send two signals
  };
  for (const signal of signals) process.on(signal, handleSignal);
  return () => {
    for (const signal of signals) process.off(signal, handleSignal);
  };
};
