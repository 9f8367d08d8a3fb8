/**
 * If more milliseconds than these are between the load of the function and its first review, the review didn't wait for
 * the start: Lambda started the function ahead of time.
 */
const maxMillisecondsToFirstReview = 2000;

/**
 * Returns a function that must be called after each review. It returns for how many milliseconds the review waited for
 * the function's start: 0 except for the first review. The time before Lambda starts Node is not measured.
 */
export const createStartMeter = (
  initializationType: string | undefined,
  getTime: () => number = Date.now,
  getUptimeSeconds: () => number = process.uptime,
): ((reviewMilliseconds: number) => number) => {
  // 0 means that no review waits for the start. With provisioned concurrency, functions are started ahead of time.
  let loadedAt = initializationType === "provisioned-concurrency" ? 0 : getTime();
  return (reviewMilliseconds) => {
    const beganAt = getTime() - reviewMilliseconds;
    // A review that began long after the load didn't wait. If `loadedAt` is 0, that holds for each review.
    const isDelayed = beganAt - loadedAt < maxMillisecondsToFirstReview;
    // Reviews after the first one don't wait.
    loadedAt = 0;
    return isDelayed ? Math.round(getUptimeSeconds() * 1000 - reviewMilliseconds) : 0;
  };
};
