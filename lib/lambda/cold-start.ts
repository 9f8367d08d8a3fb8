/**
 * The longest time between the loading of a function and the review that waited for it, in milliseconds. Lambda hands
 * that review over after the warm-up; it also starts functions ahead of time, and no review waits for those.
 */
const longestHandover = 2000;

/**
 * Returns a function that returns the milliseconds for which the review before it waited for the function's start, from
 * the start of Node on. It is 0 except for the first review. Not measured is what Lambda does before it starts Node.
 */
export const createStartMeter = (
  initializationType: string | undefined,
  getTime: () => number = Date.now,
  getUptimeSeconds: () => number = process.uptime,
): ((reviewMilliseconds: number) => number) => {
  // With provisioned concurrency, functions are started ahead of time.
  let ready = initializationType === "provisioned-concurrency" ? 0 : getTime();
  return (reviewMilliseconds) => {
    const isAwaited = getTime() - reviewMilliseconds - ready < longestHandover;
    ready = 0;
    return isAwaited ? Math.round(getUptimeSeconds() * 1000 - reviewMilliseconds) : 0;
  };
};
