/** Loads review-faults.ts. In Lambda, this module is a separate file, which isn't read when a function starts. */
export const loadReviewFaults = () => import("./review-faults.ts");
