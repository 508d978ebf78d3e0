//! Observations of request times in one `prometheus::Histogram`, from all threads.

use prometheus::{Histogram, HistogramOpts};

fn main() {
    let (threads, turns) = found::arguments(500);
    let options = HistogramOpts::new("latency", "of requests").buckets(vec![0.1, 0.5, 1.0, 5.0]);
    let histogram = Histogram::with_opts(options).unwrap();
    let sum = found::run(threads, turns, |_, turn| {
        histogram.observe((turn % 4) as f64 * 0.3);
        1
    });
    assert_eq!(histogram.get_sample_count(), sum);
    println!("{sum} observations");
}
