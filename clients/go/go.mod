module pgfresh.invalid/pgfreshtest

go 1.21
